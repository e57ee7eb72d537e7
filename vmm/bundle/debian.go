package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	debianDiskMiB = 4096
	// debianSuite is built on hosts that aren't Debian themselves.
	debianSuite = "bookworm"
)

// debianPackages is what an agent that works on code expects, on top of minbase.
var debianPackages = []string{
	"ca-certificates", "curl", "gcc", "git", "iproute2", "less", "libc6-dev", "make", "patch", "procps", "python3",
}

// debianLean keeps out what is only read by people, as the images for containers do.
var debianLean = []string{
	"path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/locale/*",
	"path-exclude=/usr/share/lintian/*",
}

// debianTree makes a small Debian, with mmdebstrap or else debootstrap.
func (b *builder) debianTree(ctx context.Context) (tree, error) {
	dir := filepath.Join(b.scratch, "root")
	suite := hostSuite()
	b.step("install Debian "+suite, 0, 0, "")
	err := b.mmdebstrap(ctx, suite, dir)
	if errors.Is(err, ErrMissingTool) {
		if _, lerr := lookPath("debootstrap"); lerr != nil {
			return tree{}, err
		}
		err = b.debootstrap(ctx, suite, dir)
	}
	if err != nil {
		if ctx.Err() == nil && isNetworkTrouble(err) {
			err = fmt.Errorf("%w: %w", ErrDownload, err)
		}
		return tree{}, err
	}
	b.step("clean the root folder", 0, 0, "")
	for _, left := range []string{"etc/apt/apt.conf.d/99mmdebstrap", "var/log/bootstrap.log", "var/log/apt/history.log",
		"var/log/apt/term.log", "var/log/dpkg.log", "var/log/alternatives.log", "var/cache/ldconfig/aux-cache",
		"etc/machine-id", "var/lib/dbus/machine-id"} {
		if err := os.Remove(filepath.Join(dir, left)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return tree{}, err
		}
	}
	if err := writeRootFiles(dir, []rootFile{
		{"etc/hostname", 0o644, "flash\n"},
		{"etc/hosts", 0o644, hostsText},
		{"etc/resolv.conf", 0o644, resolvText},
		{"etc/fstab", 0o644, "/dev/vda / ext4 rw,relatime 0 1\n"},
		{"etc/machine-id", 0o644, ""}, // each VM gets its own
	}); err != nil {
		return tree{}, err
	}
	if err := finishTree(dir); err != nil {
		return tree{}, err
	}
	versions, err := installedVersions(ctx, dir)
	if err != nil {
		return tree{}, err
	}
	return tree{dir: dir, diskMiB: debianDiskMiB, facts: map[string]string{
		FactSource: "debian", FactSuite: suite, FactPackages: versions}}, nil
}

// mmdebstrap installs from this host's own sources, so that mirrors and proxies set up here are used.
func (b *builder) mmdebstrap(ctx context.Context, suite, dir string) error {
	archives := filepath.Join(b.cache, "archives")
	if err := os.MkdirAll(archives, 0o755); err != nil {
		return err
	}
	args := []string{
		"--quiet", "--mode=root", "--variant=minbase", "--include=" + strings.Join(debianPackages, ","),
		// Downloaded packages go to the cache and come from there next time.
		"--skip=download/empty", "--skip=essential/unlink", "--skip=check/empty",
		"--setup-hook=mkdir -p \"$1\"/var/cache/apt/archives && cp --reflink=auto -t \"$1\"/var/cache/apt/archives " + shellQuote(archives) + "/*.deb 2>/dev/null || true",
		// Complete under its own name or not there at all: another build may be copying.
		"--customize-hook=for f in \"$1\"/var/cache/apt/archives/*.deb; do n=" + shellQuote(archives) + "/\"${f##*/}\"; test -e \"$n\" || { cp \"$f\" \"$n.$$\" && mv \"$n.$$\" \"$n\"; }; done",
		"--customize-hook=chroot \"$1\" apt-get clean",
	}
	for _, opt := range debianLean {
		args = append(args, "--dpkgopt="+opt)
	}
	config, err := command{name: "apt-config", pkg: "apt", args: []string{"dump", "--no-empty", "--format", "%F \"%v\";%n", "Acquire"}}.run(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	for line := range strings.Lines(string(config)) { // none without apt
		if line = strings.TrimSpace(line); line != "" {
			args = append(args, "--aptopt="+line)
		}
	}
	args = append(args, suite, dir)
	args = append(args, hostSources()...)
	_, err = command{name: "mmdebstrap", pkg: "mmdebstrap", args: args, ownMount: true}.run(ctx)
	return err
}

// debootstrap is the older tool that more hosts have.
func (b *builder) debootstrap(ctx context.Context, suite, dir string) error {
	archives := filepath.Join(b.cache, "archives")
	if err := os.MkdirAll(archives, 0o755); err != nil {
		return err
	}
	args := []string{"--variant=minbase", "--include=" + strings.Join(debianPackages, ","), "--cache-dir=" + archives, suite, dir}
	if _, err := (command{name: "debootstrap", pkg: "debootstrap", args: args, ownMount: true}).run(ctx); err != nil {
		return err
	}
	_, err := command{name: "chroot", pkg: "coreutils", args: []string{dir, "apt-get", "clean"}}.run(ctx)
	return err
}

// installedVersions lists what was asked for, and its versions.
func installedVersions(ctx context.Context, dir string) (string, error) {
	args := append([]string{"--admindir=" + filepath.Join(dir, "var/lib/dpkg"), "-W", "-f", "${Package}=${Version} "}, debianPackages...)
	out, err := command{name: "dpkg-query", pkg: "dpkg", args: args}.run(ctx)
	return strings.TrimSpace(string(out)), err
}

// hostSuite is the host's own release when it is a Debian.
func hostSuite() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return debianSuite
	}
	field := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + `="?([a-z0-9.-]+)"?$`).FindSubmatch(text)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	if suite := field("VERSION_CODENAME"); field("ID") == "debian" && suite != "" {
		return suite
	}
	return debianSuite
}

// hostSources lists the host's files of apt sources when it is a Debian; none means the tool's own default.
func hostSources() []string {
	if text, err := os.ReadFile("/etc/os-release"); err != nil || !regexp.MustCompile(`(?m)^ID="?debian"?$`).Match(text) {
		return nil
	}
	var files []string
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/debian*.list"} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		for _, f := range found {
			if text, err := os.ReadFile(f); err == nil && regexp.MustCompile(`(?m)^\s*(deb\s|Types:)`).Match(text) {
				files = append(files, f)
			}
		}
	}
	return files
}

// isNetworkTrouble recognises apt's words for not getting what it wanted.
func isNetworkTrouble(err error) bool {
	var ce *commandError
	if !errors.As(err, &ce) {
		return false
	}
	for _, words := range []string{"Could not resolve", "Could not connect", "Failed to fetch", "Temporary failure resolving", "Unable to fetch", "apt-get update --error-on=any"} {
		if strings.Contains(ce.stderr, words) {
			return true
		}
	}
	return false
}

// shellQuote makes s one word for a shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
