package bundle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestPackageListIsRead(t *testing.T) {
	p, err := parsePackage("Package: busybox-static\nVersion: 1:1.35.0-4\nArchitecture: amd64\nDepends: a (= 1), b | c\nDescription: x\n y: z\nSHA256: abcd\n\nPackage: other\nVersion: 2\n")
	if err != nil {
		t.Fatal(err)
	}
	want := debPackage{name: "busybox-static", version: "1:1.35.0-4", arch: "amd64", depends: "a (= 1), b | c", sha256: "abcd"}
	if p != want {
		t.Errorf("%+v", p)
	}
	if f := p.fileName(); f != "busybox-static_1%3a1.35.0-4_amd64.deb" {
		t.Error(f)
	}
	for _, bad := range []string{"", "Package: a\n", "Package: ../a\nVersion: 1\nArchitecture: all\n"} {
		if _, err := parsePackage(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if k := kernelDepend.FindString("foo, linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3), bar"); k != "linux-image-6.1.0-57-cloud-amd64" {
		t.Error(k)
	}
}

func TestOfflineTheNewestCachedPackageIsUsed(t *testing.T) {
	b := newBuilder(t)
	b.cache = t.TempDir()
	for i, name := range []string{"linux-image-6.1.0-9-cloud-amd64_6.1.1-1_amd64.deb", "linux-image-6.1.0-57-cloud-amd64_1%3a6.1.2-1_amd64.deb", "other_1_amd64.deb", ".partial-7"} {
		at := filepath.Join(b.cache, name)
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
	}
	file, version := b.newestCached(regexp.MustCompile("^linux-image-.*$"))
	if filepath.Base(file) != "linux-image-6.1.0-57-cloud-amd64_1%3a6.1.2-1_amd64.deb" || version != "1:6.1.2-1" {
		t.Error(file, version)
	}
	if file, _ = b.newestCached(regexp.MustCompile("^nothing$")); file != "" {
		t.Error(file)
	}
}

func TestAMissingProgramIsNamedWithItsPackage(t *testing.T) {
	_, err := command{name: "no-such-program", pkg: "its-package"}.run(context.Background())
	if !errors.Is(err, ErrMissingTool) || !regexp.MustCompile("apt-get install its-package").MatchString(err.Error()) {
		t.Error(err)
	}
}

func TestKernelOfAnotherFlavourIsNoSubstitute(t *testing.T) {
	for name, flavour := range map[string]string{
		"linux-image-6.1.0-57-amd64": "", "linux-image-6.12.48+deb13-amd64": "", "linux-image-6.1.0-0.deb11.13-amd64": "",
		"linux-image-6.1.0-57-cloud-amd64": "cloud-", "linux-image-6.12.48+deb13-cloud-amd64": "cloud-",
		"linux-image-6.1.0-57-rt-amd64": "rt-", "linux-image-6.1.0-57-amd64-dbg": "none", "linux-image-amd64": "none",
	} {
		for _, f := range []string{"", "cloud-"} {
			if got := kernelPackages(f, "amd64").MatchString(name); got != (f == flavour) {
				t.Errorf("%s as a kernel of flavour %q: %t", name, f, got)
			}
		}
	}
}
