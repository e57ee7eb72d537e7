package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// debPackage is a package as apt's lists describe it.
type debPackage struct {
	name, version, arch string
	depends             string
	sha256              string // of the .deb; "": unknown
}

// fileName is what apt-get download calls it: a ':' of the version is escaped.
func (p debPackage) fileName() string {
	return p.name + "_" + strings.ReplaceAll(p.version, ":", "%3a") + "_" + p.arch + ".deb"
}

// candidate asks apt for the version of a package it would install. The lists are fetched once when there are none.
func (b *builder) candidate(ctx context.Context, name string) (debPackage, error) {
	p, err := aptShow(ctx, name)
	if err == nil || errors.Is(err, ErrMissingTool) || ctx.Err() != nil {
		return p, err
	}
	if uerr := b.aptUpdate(ctx); uerr != nil {
		return p, fmt.Errorf("%w: apt knows no package %s (%w), and its lists can't be fetched: %w", ErrDownload, name, err, uerr)
	}
	if p, err = aptShow(ctx, name); err != nil {
		return p, fmt.Errorf("%w: apt knows no package %s: %w", ErrDownload, name, err)
	}
	return p, nil
}

func (b *builder) aptUpdate(ctx context.Context) error {
	b.step("fetch package lists", 0, 0, "")
	// Without Error-Mode apt reports success although nothing could be fetched.
	_, err := command{name: "apt-get", pkg: "apt", args: []string{"-q", "-o", "APT::Update::Error-Mode=any", "update"}}.run(ctx)
	return err
}

func aptShow(ctx context.Context, name string) (debPackage, error) {
	out, err := command{name: "apt-cache", pkg: "apt", args: []string{"show", "--no-all-versions", name}}.run(ctx)
	if err != nil {
		return debPackage{}, err
	}
	return parsePackage(string(out))
}

// parsePackage reads the first paragraph of a package list.
func parsePackage(text string) (debPackage, error) {
	var p debPackage
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "Package":
			p.name = value
		case "Version":
			p.version = value
		case "Architecture":
			p.arch = value
		case "Depends":
			p.depends = value
		case "SHA256":
			p.sha256 = value
		}
	}
	if p.name == "" || p.version == "" || p.arch == "" || strings.ContainsAny(p.name+p.version+p.arch, "/ ") {
		return p, fmt.Errorf("not a description of a package: %.80q", text)
	}
	return p, nil
}

// download gives the file of a package, from the cache when it is there.
func (b *builder) download(ctx context.Context, p debPackage) (string, error) {
	file := filepath.Join(b.cache, p.fileName())
	if ok, err := matches(file, p.sha256); err != nil {
		return "", err
	} else if ok {
		return file, nil
	}
	b.step("download "+p.name, 0, 0, "")
	dir := filepath.Join(b.scratch, "download")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	get := command{name: "apt-get", pkg: "apt", dir: dir, args: []string{
		"-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "-o", "Dpkg::Use-Pty=0",
		"download", p.name + "=" + p.version}}
	if _, err := get.run(ctx); err != nil {
		return "", fmt.Errorf("%w: %s %s: %w", ErrDownload, p.name, p.version, err)
	}
	got := filepath.Join(dir, p.fileName())
	if ok, err := matches(got, p.sha256); err != nil {
		return "", err
	} else if !ok {
		return "", fmt.Errorf("%w: %s isn't the file that apt's lists describe", ErrDownload, p.fileName())
	}
	if err := moveInto(got, file); err != nil {
		return "", fmt.Errorf("cache of packages: %w", err)
	}
	return file, nil
}

// fetch gives the newest version of a package that can be had: the one in apt's lists, or else the newest in the cache.
func (b *builder) fetch(ctx context.Context, name string) (file, version string, err error) {
	p, err := b.candidate(ctx, name)
	if err == nil {
		if file, err = b.download(ctx, p); err != nil && ctx.Err() == nil {
			// The lists may be older than the mirror, which drops superseded versions.
			if uerr := b.aptUpdate(ctx); uerr == nil {
				if p, err = b.candidate(ctx, name); err == nil {
					file, err = b.download(ctx, p)
				}
			}
		}
	}
	if err == nil {
		return file, p.version, nil
	}
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if file, version = b.newestCached(regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$")); file == "" {
		return "", "", err
	}
	return file, version, nil
}

// newestCached gives the cached package, among those whose name matches, that was downloaded last.
func (b *builder) newestCached(name *regexp.Regexp) (file, version string) {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return "", ""
	}
	type found struct {
		file, version string
		at            time.Time
	}
	var all []found
	for _, e := range entries {
		parts := strings.Split(strings.TrimSuffix(e.Name(), ".deb"), "_")
		info, err := e.Info()
		if err != nil || len(parts) != 3 || !name.MatchString(parts[0]) || !strings.HasSuffix(e.Name(), ".deb") {
			continue
		}
		all = append(all, found{filepath.Join(b.cache, e.Name()), strings.ReplaceAll(parts[1], "%3a", ":"), info.ModTime()})
	}
	if len(all) == 0 {
		return "", ""
	}
	sort.Slice(all, func(i, j int) bool { return all[i].at.After(all[j].at) })
	return all[0].file, all[0].version
}

// matches tells whether file exists and has that hash; any file will do when none is known.
func matches(file, want string) (bool, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return want == "" || hex.EncodeToString(h.Sum(nil)) == want, nil
}

// moveInto puts a complete file at to, which may be on another file system, so that it appears there whole or not at all.
func moveInto(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".partial-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // no longer there after the rename
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
