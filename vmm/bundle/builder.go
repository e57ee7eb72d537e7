package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"flash/vmm/guest"
	"flash/vmm/guest/agentbin"
)

// builder is one build: what it was asked, and its scratch folder.
type builder struct {
	scratch string // exists; removed with everything below it when the build ends
	cache   string // exists; shared by builds, so files appear in it complete (renamed into place)
	step    func(step string, done, total int64, unit string)
}

// tree is a finished root folder and what is to be said of it.
type tree struct {
	dir     string
	diskMiB int // what it gets unless the caller said otherwise
	facts   map[string]string
	config  []byte // JSON of ImageConfig; nil: none
}

// produce is the one way a bundle comes to be: tree, kernel, initrd, disk, snapshot.
func (c Config) produce(ctx context.Context, name string, diskMiB int, makeTree func(context.Context, *builder) (tree, error)) (res Result, err error) {
	if err := checkRequest(name, diskMiB); err != nil {
		return Result{}, err
	}
	if err := checkHost(); err != nil {
		return Result{}, err
	}
	getAgent := agentbin.Agent
	if c.agent != nil {
		getAgent = c.agent
	}
	getKernel := func(ctx context.Context, b *builder) (kernel, error) { return b.kernel(ctx) }
	if c.getKernel != nil {
		getKernel = c.getKernel
	}
	agent, err := getAgent()
	if err != nil {
		return Result{}, err
	}
	b, release, err := c.begin()
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if rerr := release(); rerr != nil && err == nil {
			err = rerr
		}
		if err != nil {
			err = explainNoSpace(err)
		}
	}()

	t, err := makeTree(ctx, b)
	if err != nil {
		return Result{}, err
	}
	k, err := getKernel(ctx, b)
	if err != nil {
		return Result{}, err
	}
	initrd, err := buildInitrd(agent, k.modules)
	if err != nil {
		return Result{}, err
	}
	if diskMiB == 0 {
		diskMiB = t.diskMiB
	}
	disk := filepath.Join(b.scratch, "disk0")
	if err := b.makeExt4(ctx, t.dir, disk, diskMiB); err != nil {
		return Result{}, err
	}

	agentHash := sha256.Sum256(agent)
	facts := map[string]string{
		FactKernel:    k.release,
		FactProtocol:  strconv.Itoa(guest.Protocol),
		FactAgentHash: hex.EncodeToString(agentHash[:]),
		FactArch:      runtime.GOARCH,
		FactDiskMiB:   strconv.Itoa(diskMiB),
		FactMemMiB:    "512",
		FactVCPUs:     "1",
	}
	maps.Copy(facts, t.facts)
	return c.commit(ctx, b, name, parts{kernel: k.image, initrd: initrd, disk: disk, diskMiB: diskMiB, config: t.config, facts: facts})
}

// begin makes scratch. The returned function removes it again.
func (c Config) begin() (*builder, func() error, error) {
	step := c.Progress
	if step == nil {
		step = func(string, int64, int64, string) {}
	}
	cache, err := c.cacheDir()
	if err != nil {
		return nil, nil, err
	}
	scratch, release, err := openScratch(c.WorkDir)
	if err != nil {
		return nil, nil, err
	}
	return &builder{scratch: scratch, cache: cache, step: step}, release, nil
}

// cacheDir gives the folder of downloaded packages, made if absent.
func (c Config) cacheDir() (string, error) {
	dir := c.CacheDir
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil { // a daemon without HOME
			user = c.WorkDir
		}
		dir = filepath.Join(user, "flash", "packages")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache folder for packages: %w", err)
	}
	return filepath.Abs(dir)
}
