package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// kernel is what is taken from a kernel's package.
type kernel struct {
	release string // "6.1.0-57-cloud-amd64"
	version string // the package's, "6.1.192-3"
	image   []byte
	modules []module // in the order in which they are loaded
}

// kernelDepend finds the package with the kernel in what the metapackage depends on.
var kernelDepend = regexp.MustCompile(`\b(linux-image-[0-9][^ ,|()]*)`)

// kernel gives Debian's newest kernel for virtual machines, out of its package; nothing is installed on this host.
func (b *builder) kernel(ctx context.Context) (kernel, error) {
	return b.kernelOf(ctx, "cloud-", neededModules)
}

// kernelOf gives Debian's newest kernel of a flavour ("" is the one for real machines), with these modules and all they need.
func (b *builder) kernelOf(ctx context.Context, flavour string, modules []string) (kernel, error) {
	arch := debianArch()
	name, meta := "", debPackage{}
	meta, err := b.candidate(ctx, "linux-image-"+flavour+arch)
	if err == nil {
		if name = kernelDepend.FindString(meta.depends); name == "" {
			return kernel{}, fmt.Errorf("package %s depends on no kernel: %q", meta.name, meta.depends)
		}
	}
	var file, version string
	if err == nil {
		file, version, err = b.fetch(ctx, name)
	}
	if err != nil {
		if ctx.Err() != nil {
			return kernel{}, ctx.Err()
		}
		// Offline: any kernel that was downloaded before is better than none.
		file, version = b.newestCached(regexp.MustCompile(`^linux-image-[0-9.]+[^-]*-[0-9]+-` + flavour + arch + `$`))
		if file == "" {
			return kernel{}, fmt.Errorf("kernel: %w", err)
		}
	}
	b.step("unpack the kernel", 0, 0, "")
	k, err := readKernel(ctx, file, modules)
	k.version = version
	return k, err
}

// debianArch is Debian's name for this host's architecture; it is the same as Go's where flash runs.
func debianArch() string { return runtime.GOARCH }

// readKernel takes the kernel, these modules and all they need out of a package.
func readKernel(ctx context.Context, file string, modules []string) (kernel, error) {
	var k kernel
	const boot, lib = "boot/vmlinuz-", "lib/modules/"
	packed := map[string][]byte{} // all modules: which are needed is known only at the end
	names := map[string]string{}  // module name → path in the package
	builtin := map[string]bool{}
	take := func(name string) bool {
		name = strings.TrimPrefix(name, "usr/") // where newer packages have them
		return strings.HasPrefix(name, boot) ||
			strings.HasPrefix(name, lib) && (strings.Contains(path.Base(name), ".ko") || path.Base(name) == "modules.builtin")
	}
	err := readDeb(ctx, file, take, func(name string, data []byte) error {
		switch name = strings.TrimPrefix(name, "usr/"); {
		case strings.HasPrefix(name, boot):
			k.release, k.image = name[len(boot):], data
		case path.Base(name) == "modules.builtin":
			for line := range strings.Lines(string(data)) {
				builtin[moduleName(strings.TrimSpace(line))] = true
			}
		default:
			packed[name], names[moduleName(name)] = data, name
		}
		return nil
	})
	if err != nil {
		return k, err
	}
	if k.image == nil {
		return k, fmt.Errorf("package %s holds no kernel", path.Base(file))
	}
	k.modules, err = loadOrder(modules, func(name string) (module, bool, error) {
		if builtin[name] {
			return module{}, false, nil
		}
		at, ok := names[name]
		if !ok {
			return module{}, false, errors.New("neither a module nor built into the kernel")
		}
		plain, err := unpackModule(ctx, at, packed[at])
		if err != nil {
			return module{}, false, err
		}
		stem, _, _ := strings.Cut(path.Base(at), ".ko")
		m, err := readModule(stem+".ko", plain)
		return m, true, err
	})
	if err != nil {
		return k, fmt.Errorf("package %s: %w", path.Base(file), err)
	}
	return k, nil
}

// maxModule bounds a module that claims to be small while compressed.
const maxModule = 64 << 20

// unpackModule gives a module's plain bytes.
func unpackModule(ctx context.Context, name string, data []byte) ([]byte, error) {
	var r io.Reader
	switch path.Ext(name) {
	case ".ko":
		return data, nil
	case ".gz":
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	case ".zst":
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	case ".xz":
		return command{name: "xz", pkg: "xz-utils", args: []string{"-dc"}, stdin: bytes.NewReader(data)}.run(ctx)
	default:
		return nil, fmt.Errorf("%s is compressed in a way that isn't known here", path.Base(name))
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxModule+1))
	if err == nil && len(plain) > maxModule {
		err = fmt.Errorf("has more than %d bytes", maxModule)
	}
	return plain, err
}
