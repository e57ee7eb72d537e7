package guest

import (
	"context"
	"time"
)

// How long a control call may take when its caller doesn't say.
const (
	controlLimit  = 30 * time.Second
	repairLimit   = 2 * time.Minute // hooks run in it
	syncLimit     = 5 * time.Minute
	shutdownLimit = time.Minute
)

// Freeze stops the workload: every exec's processes. The agent thaws by itself after limit, should the host die.
func (c *Client) Freeze(ctx context.Context, limit time.Duration) error {
	return c.do(ctx, controlLimit, "freeze the workload", opFreeze, freezeBody{Limit: limit}, nil)
}

// Thaw lets the workload go on.
func (c *Client) Thaw(ctx context.Context) error {
	return c.do(ctx, controlLimit, "thaw the workload", opThaw, nil, nil)
}

// Repair does all or fails; on failure the workload stays frozen. A Now that still has its monotonic reading is brought
// up to date when the request leaves.
func (c *Client) Repair(ctx context.Context, r Repair) error {
	if wall := r.Now.Round(0); r.Now != wall { // it has one
		r.Now = wall.Add(time.Since(r.Now))
	}
	return c.do(ctx, repairLimit, "repair the guest", opRepair, r, nil)
}

// Execs lists what the agent knows, oldest first.
func (c *Client) Execs(ctx context.Context) ([]ExecInfo, error) {
	var infos []ExecInfo
	err := c.do(ctx, controlLimit, "list the guest's execs", opExecs, nil, &infos)
	return infos, err
}

// Kill kills an exec's whole cgroup.
func (c *Client) Kill(ctx context.Context, id string) error {
	return c.do(ctx, controlLimit, "kill exec "+id, opKill, idBody{ID: id}, nil)
}

// SyncFS flushes the guest's file systems.
func (c *Client) SyncFS(ctx context.Context) error {
	return c.do(ctx, syncLimit, "sync the guest's file systems", opSync, nil, nil)
}

// Shutdown asks the guest to power off.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.do(ctx, shutdownLimit, "shut the guest down", opShutdown, nil, nil)
}
