package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"flash/store"
)

// Plain measures the same guest under plain QEMU: savevm and loadvm of internal snapshots in a qcow2 file, by the
// human monitor on standard input. Bytes are what the file grew by, in allocated blocks.
type Plain struct {
	Store  *store.Store
	Bundle string
	MemMiB int
	Dir    string // scratch
	Binary string // qemu-system-x86_64
	Rounds int
}

// plainBoot bounds the time from start to the agent's line on the console.
const plainBoot = 120 * time.Second

// PlainFigures are the baselines.
type PlainFigures struct {
	SaveMillis, LoadMillis, SaveKiB Figure
}

// Run boots the bundle and saves and loads it Rounds times.
func (p Plain) Run(ctx context.Context) (_ PlainFigures, err error) {
	dir, err := os.MkdirTemp(p.Dir, "plain")
	if err != nil {
		return PlainFigures{}, err
	}
	defer os.RemoveAll(dir)
	disk := filepath.Join(dir, "disk.qcow2")
	if err := p.export(ctx, dir, disk); err != nil {
		return PlainFigures{}, fmt.Errorf("export bundle %s for plain QEMU: %w", p.Bundle, err)
	}
	console := filepath.Join(dir, "console")
	cmd := exec.CommandContext(ctx, p.Binary, "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", fmt.Sprint(p.MemMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "stdio", "-serial", "file:"+console,
		"-kernel", filepath.Join(dir, "kernel"), "-initrd", filepath.Join(dir, "initrd"),
		"-append", "console=ttyS0 panic=-1 init_on_free=1 no_timer_check",
		"-device", "virtio-serial-pci", "-chardev", "null,id=agent", "-device", "virtserialport,chardev=agent,name=flash.agent",
		"-drive", "if=virtio,format=qcow2,file="+disk)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return PlainFigures{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return PlainFigures{}, err
	}
	if err := cmd.Start(); err != nil {
		return PlainFigures{}, err
	}
	defer func() {
		fmt.Fprintln(stdin, "quit")
		stdin.Close()
		err = errors.Join(err, cmd.Wait())
	}()
	m := monitor{stdin, bufio.NewReader(stdout)}
	if _, err := m.answer(); err != nil {
		return PlainFigures{}, err
	}
	if err := waitForLine(ctx, console, "flash-agent", plainBoot); err != nil {
		return PlainFigures{}, err
	}
	var save, load, kib []float64
	for i := range p.Rounds + 1 {
		before := allocated(disk)
		took, err := m.do(fmt.Sprintf("savevm s%d", i))
		if err != nil {
			return PlainFigures{}, err
		}
		if i > 0 { // the first one also allocates what later ones reuse
			save = append(save, millis(took))
			kib = append(kib, float64(allocated(disk)-before)/1024)
		}
		if took, err = m.do(fmt.Sprintf("loadvm s%d", i)); err != nil {
			return PlainFigures{}, err
		}
		load = append(load, millis(took))
	}
	return PlainFigures{
		SaveMillis: figure("plain QEMU savevm", "ms", "", save),
		LoadMillis: figure("plain QEMU loadvm", "ms", "", load),
		SaveKiB:    figure("plain QEMU: bytes per savevm", "KiB", "", kib),
	}, nil
}

// export writes kernel and initrd as files and the root disk as qcow2.
func (p Plain) export(ctx context.Context, dir, disk string) error {
	b, err := p.Store.Bundle(ctx, p.Bundle)
	if err != nil {
		return err
	}
	snap, err := p.Store.Snapshot(ctx, b.Snapshot)
	if err != nil {
		return err
	}
	for _, name := range []string{"kernel", "initrd"} {
		im, err := snap.Image(ctx, name)
		if err != nil {
			return err
		}
		data, err := im.ReadAll(ctx)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	im, err := snap.Image(ctx, "disk0")
	if err != nil {
		return err
	}
	raw := filepath.Join(dir, "disk.raw")
	if err := WriteImage(ctx, im, raw); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img convert: %w: %s", err, out)
	}
	return nil
}

// monitor speaks to QEMU's human monitor.
type monitor struct {
	in  io.Writer
	out *bufio.Reader
}

const prompt = "(qemu) "

// answer reads up to the next prompt.
func (m monitor) answer() (string, error) {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), prompt) {
		c, err := m.out.ReadByte()
		if err != nil {
			return b.String(), fmt.Errorf("plain QEMU ended: %w", err)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

func (m monitor) do(command string) (time.Duration, error) {
	began := time.Now()
	if _, err := fmt.Fprintln(m.in, command); err != nil {
		return 0, err
	}
	said, err := m.answer()
	took := time.Since(began)
	if err == nil && strings.Contains(said, "Error") {
		err = fmt.Errorf("plain QEMU: %s: %s", command, strings.TrimSpace(said))
	}
	return took, err
}

// waitForLine waits until a console says word.
func waitForLine(ctx context.Context, path, word string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(word)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("plain QEMU's guest didn't say %q: %w", word, ctx.Err())
		}
	}
}
