package cli

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports is the direction of the project: which of our packages each may import, and why. What isn't here isn't
// allowed; what changes here changes the architecture. Tests of a package may import more: they build a world around it.
var imports = map[string]struct {
	may []string
	why string
}{
	"cas":                   {nil, "what a chunk is doesn't depend on who stores it or what for"},
	"cas/pack":              {[]string{"cas"}, "a format is pure: it doesn't know where packs lie"},
	"cas/local":             {[]string{"cas", "cas/pack"}, "the near tier knows files, not the far tier"},
	"cas/bucket":            {nil, "what object storage is doesn't depend on what is kept there"},
	"cas/bucket/s3":         {[]string{"cas/bucket"}, "a client of S3 knows keys and bytes"},
	"cas/bucket/dir":        {[]string{"cas/bucket"}, "a folder as a bucket: for disks and NFS"},
	"cas/bucket/seal":       {[]string{"cas/bucket"}, "encryption wraps any bucket and knows no packs"},
	"cas/bucket/buckettest": {[]string{"cas/bucket"}, "a conformance suite, a real S3 server and a proxy that injects faults, for tests"},
	"cas/remote":            {[]string{"cas", "cas/pack", "cas/bucket"}, "the far tier knows objects, not local files"},
	"cas/tiered":            {[]string{"cas"}, "one store over two doesn't know which tiers they are"},
	"cas/castest":           {[]string{"cas", "cas/local"}, "a conformance suite tests any store; its crashing disk stands behind local's file-system seam, whose types it needs"},
	"cas/castest/lossy":     {[]string{"cas/castest", "cas/local"}, "the crashing disk as a mount, for programs that know no seam"},
	"store/offsite":         {[]string{"cas", "cas/pack", "cas/bucket", "cas/remote", "store", "store/manifest"}, "what leaves the host and comes back: it knows the store and its packs as objects, neither S3 nor machines"},
	"store":                 {[]string{"cas", "store/manifest"}, "snapshots mean nothing about pages, KVM or HTTP"},
	"store/manifest":        {[]string{"cas"}, "a format is pure: it doesn't know Badger"},
	"memtrack":              {nil, "which pages changed doesn't depend on chunks or engines"},
	"memtrack/uffd":         {[]string{"memtrack"}, "a pager doesn't know where pages come from"},
	"memtrack/pagemap":      {[]string{"memtrack"}, "a tracker doesn't know what becomes of what it finds"},
	"memtrack/memtest":      {[]string{"memtrack"}, "a stand-in for a machine's process, for the tests of trackers and pagers"},
	"blockdelta":            {nil, "an overlay doesn't know the store below or the device above"},
	"blockdelta/nbd":        {[]string{"blockdelta"}, "NBD serves any machine, not QEMU's"},
	"vmm":                   {[]string{"memtrack", "blockdelta"}, "the contract between host and engines names neither"},
	"vmm/qemu":              {[]string{"vmm", "memtrack", "memtrack/uffd", "memtrack/pagemap", "blockdelta", "blockdelta/nbd"}, "an engine runs machines; it never sees the store"},
	"vmm/fake":              {[]string{"vmm", "vmm/guest", "memtrack", "blockdelta"}, "a machine for tests, with a guest inside, on any system"},
	"vmm/vmmtest":           {[]string{"vmm", "vmm/guest", "memtrack", "blockdelta"}, "a conformance suite tests any engine, so it knows none"},
	"vmm/vmmtest/nested":    {[]string{"vmm/bundle"}, "it runs commands on an emulated machine, whose kernel and initrd it makes as a bundle's are"},
	"vmm/guest":             {nil, "the conversation with a guest is the same over every engine's channel"},
	"vmm/guest/agent":       {[]string{"vmm/guest"}, "what runs in the guest shares the protocol only, and stays small"},
	"vmm/guest/agentbin":    {nil, "it carries bytes"},
	"vmm/bundle":            {[]string{"store", "cas", "vmm/guest", "vmm/guest/agentbin"}, "a bundle is files and the agent in the store; no engine is needed to make it"},
	"vmm/bundle/ext4fs":     {nil, "what is on a disk doesn't depend on where it is stored or who runs on it"},
	"vmm/host":              {[]string{"vmm", "vmm/guest", "vmm/bundle", "vmm/bundle/ext4fs", "store", "store/offsite", "cas/bucket", "cas/remote", "cas", "memtrack", "blockdelta"}, "the application knows engines by contract, and neither flags nor HTTP"},
	"cli":                   {[]string{"*"}, "wire.go builds everything"},
	"cli/flash":             {[]string{"cli"}, "main is five lines"},
	"cli/httpapi":           {[]string{"cas/bucket", "store/offsite", "vmm/host", "vmm", "vmm/guest", "store"}, "a door translates the host and its structs; engines are none of its business"},
	"cli/mcpserver":         {[]string{"vmm/host", "vmm", "vmm/guest", "store", "cli/httpapi"}, "a door; its flash_host reaches every route of httpapi"},
	"cli/gateway":           {[]string{"vmm/host", "vmm", "vmm/guest", "store"}, "a door"},
	"bench":                 {[]string{"vmm/host", "vmm", "vmm/guest", "vmm/bundle", "store", "store/manifest", "cas", "cas/pack", "cas/local", "cas/bucket", "cas/bucket/s3", "cas/bucket/buckettest", "cas/remote", "memtrack", "blockdelta"}, "workloads are run by a command and by go test, so they know no command"},
}

// libraries says which folders may import a library that shapes what imports it, and why.
var libraries = map[string]struct {
	may []string
	why string
}{
	"github.com/dgraph-io/badger":            {[]string{"store"}, "what is mutable is the store's, in one place"},
	"github.com/google/go-containerregistry": {[]string{"vmm/bundle"}, "container images end where a bundle begins"},
	"github.com/spf13/cobra":                 {[]string{"cli"}, "flags stay in the command tree"},
	"github.com/spf13/pflag":                 {[]string{"cli"}, "flags stay in the command tree"},
	"github.com/prometheus/client_golang":    {[]string{"cli/httpapi"}, "metrics are a door's: what they tell is asked of the host"},
	"golang.org/x/term":                      {[]string{"cli"}, "only the command line has a terminal"},
	"golang.org/x/crypto":                    {[]string{"cas/bucket/seal"}, "secrets are turned into keys in one place"},
	"github.com/minio/minio-go":              {[]string{"cas/bucket/s3"}, "one package knows S3"},
	"github.com/hanwen/go-fuse":              {[]string{"cas/castest/lossy"}, "only tests mount anything"},
	"net/http":                               {[]string{"cli", "cli/httpapi", "cli/mcpserver", "cli/gateway", "cas/bucket/s3", "cas/bucket/buckettest"}, "HTTP is a door, or the far tier's"},
}

// sourceFiles calls f with each Go file of the project that isn't a test, and its package's folder.
func sourceFiles(t *testing.T, f func(pkg, file string)) {
	t.Helper()
	root := ".."
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go") {
			pkg, err := filepath.Rel(root, filepath.Dir(p))
			if err != nil {
				return err
			}
			f(filepath.ToSlash(pkg), p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, im := range parsed.Imports {
		p, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// TestImportsPointTheRightWay reads the files themselves, of every system: build constraints hide nothing from it.
func TestImportsPointTheRightWay(t *testing.T) {
	files := 0
	sourceFiles(t, func(pkg, file string) {
		files++
		line, known := imports[pkg]
		if !known {
			t.Errorf("%s: the package %s has no line in the import table of cli/arch_test.go", file, pkg)
			return
		}
		for _, p := range importsOf(t, file) {
			own, ours := strings.CutPrefix(p, "flash/")
			if ours && own != pkg && !slices.Contains(line.may, own) && !slices.Contains(line.may, "*") {
				t.Errorf("%s imports %s; it may import %v: %s", file, own, line.may, line.why)
			}
			for lib, l := range libraries {
				if (p == lib || strings.HasPrefix(p, lib+"/")) && !slices.Contains(l.may, pkg) {
					t.Errorf("%s imports %s, which only %v may: %s", file, p, l.may, l.why)
				}
			}
		}
	})
	if files < 50 {
		t.Errorf("only %d files were read: the project is looked for in the wrong place", files)
	}
}

func TestEveryLineOfTheImportTableHasItsReason(t *testing.T) {
	for pkg, line := range imports {
		if line.why == "" {
			t.Errorf("%s: why?", pkg)
		}
		for _, p := range line.may {
			if _, ok := imports[p]; !ok && p != "*" {
				t.Errorf("%s may import %s, which isn't in the table", pkg, p)
			}
		}
	}
}
