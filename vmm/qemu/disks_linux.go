package qemu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"flash/blockdelta/nbd"
	"flash/vmm"
)

// maxSocketPath is what fits into a unix socket's address (sun_path, 108 with its end).
const maxSocketPath = 107

// disks serves a machine's overlays to its QEMU. The zero value serves none.
type disks struct {
	server *nbd.Server
	dir    string
}

// socketName is the disks' socket in Attach.Dir.
const socketName = "disk.sock"

// serveDisks makes the server; QEMU, which runs as user, connects later.
func serveDisks(a vmm.Attach, user *syscall.Credential, log *slog.Logger) (disks, error) {
	if len(a.Disks) == 0 {
		return disks{}, nil
	}
	path := filepath.Join(a.Dir, socketName)
	if len(path) > maxSocketPath {
		return disks{}, fmt.Errorf("disks: the path of the socket, %s, is longer than %d bytes", path, maxSocketPath)
	}
	server, err := nbd.Config{Log: log}.Listen(path) // takes over the socket of a machine whose host died
	if err != nil {
		return disks{}, fmt.Errorf("disks: %w", err)
	}
	for _, d := range a.Disks {
		server.SetExport(d.Name, d.Overlay)
	}
	err = own(a.Dir, user, 0o710) // enter it, but neither list nor change it
	if err == nil {
		err = own(path, user, 0o660)
	}
	if err != nil {
		return disks{}, fmt.Errorf("disks: let QEMU use %s: %w", path, errors.Join(err, server.Close()))
	}
	return disks{server, a.Dir}, nil
}

// close ends the server and removes its socket; it returns when no request is being served. Precondition: the QEMU has ended.
func (d disks) close() error {
	if d.server == nil {
		return nil
	}
	return d.server.Close()
}

// plug replaces the empty drives of a stopped QEMU by the disks.
//
// reconnect-delay: requests wait for a server that is away, and are sent again; without it the guest gets EIO at once and
// its file system goes on with lost data. discard and detect-zeroes make freed blocks cost nothing.
func (d disks) plug(ctx context.Context, q *monitor, list []vmm.Disk) error {
	if len(list) == 0 {
		return nil
	}
	path, err := d.lend(ctx, q)
	if err != nil {
		return fmt.Errorf("disks: %w", err)
	}
	for i, disk := range list {
		node := map[string]any{
			"driver": "nbd", "node-name": diskNode(i), "export": disk.Name,
			"server":          map[string]string{"type": "unix", "path": path},
			"reconnect-delay": 60, "open-timeout": 10, "discard": "unmap", "detect-zeroes": "unmap",
		}
		if err := q.call(ctx, "blockdev-add", node, nil); err != nil {
			return fmt.Errorf("disk %s: %w", disk.Name, err)
		}
		drive := map[string]string{"path": "/machine/peripheral/" + diskDevice(i), "property": "drive", "value": diskNode(i)}
		if err := q.call(ctx, "qom-set", drive, nil); err != nil {
			return fmt.Errorf("disk %s: %w", disk.Name, err)
		}
		if err := q.call(ctx, "blockdev-del", map[string]string{"node-name": emptyDrive(i)}, nil); err != nil {
			return fmt.Errorf("disk %s: its empty drive: %w", disk.Name, err)
		}
	}
	return nil
}

// lend gives QEMU the folder of its socket as a descriptor, which it keeps for as long as it may have to connect again, and
// tells the socket's path from there: the folders above it are closed to QEMU's user.
func (d disks) lend(ctx context.Context, q *monitor) (path string, err error) {
	folder, err := os.OpenFile(d.dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer folder.Close()
	var there struct {
		FD int `json:"fd"`
	}
	if err := q.callWith(ctx, "add-fd", nil, &there, rights(folder)); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", there.FD, socketName), nil
}
