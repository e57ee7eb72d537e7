package httpapi

import (
	"context"
	"net/url"
	"strconv"

	"flash/store"
	"flash/vmm/guest"
	"flash/vmm/host"
)

func (c *Client) List(ctx context.Context) (vms []host.VM, err error) {
	err = c.call(ctx, "GET", "/v1/host/flashvms", nil, &vms)
	return vms, err
}

func (c *Client) Get(ctx context.Context, id string) (vm host.VM, err error) {
	err = c.callVM(ctx, "GET", id, nil, nil, nil, &vm)
	return vm, err
}

func (c *Client) Create(ctx context.Context, r host.CreateRequest) (vm host.VM, err error) {
	err = c.call(ctx, "POST", "/v1/host/flashvms", r, &vm)
	return vm, err
}

func (c *Client) Fork(ctx context.Context, r host.ForkRequest) (vms []host.VM, err error) {
	b := forkBody{RequestID: r.RequestID, From: &forkFrom{r.From, r.Checkpoint}, Count: r.Count, IDs: r.IDs, Ports: r.Ports}
	err = c.call(ctx, "POST", "/v1/host/flashvms", b, &vms)
	return vms, err
}

func (c *Client) Rewind(ctx context.Context, r host.RewindRequest) (res host.RewindResult, err error) {
	err = c.callVM(ctx, "PATCH", r.ID, nil, nil, changeBody{RequestID: r.RequestID, Checkpoint: &r.Checkpoint}, &res)
	return res, err
}

func (c *Client) Start(ctx context.Context, id string) (vm host.VM, err error) {
	err = c.callVM(ctx, "PATCH", id, nil, nil, changeBody{State: "running"}, &vm)
	return vm, err
}

func (c *Client) Stop(ctx context.Context, r host.StopRequest) (vm host.VM, err error) {
	err = c.callVM(ctx, "PATCH", r.ID, nil, nil, changeBody{State: "stopped", Discard: r.Discard}, &vm)
	return vm, err
}

func (c *Client) Update(ctx context.Context, r host.UpdateRequest) (vm host.VM, err error) {
	err = c.callVM(ctx, "PATCH", r.ID, nil, nil, changeBody{Restart: r.Restart}, &vm)
	return vm, err
}

func (c *Client) Remove(ctx context.Context, r host.RemoveRequest) error {
	return c.callVM(ctx, "DELETE", r.ID, nil, url.Values{"force": {strconv.FormatBool(r.Force)}}, nil, nil)
}

func (c *Client) History(ctx context.Context, id string) (cps []host.Checkpoint, err error) {
	err = c.callVM(ctx, "GET", id, []string{"checkpoints"}, nil, nil, &cps)
	return cps, err
}

func (c *Client) Checkpoint(ctx context.Context, r host.CheckpointRequest) (cp host.Checkpoint, err error) {
	err = c.callVM(ctx, "POST", r.ID, []string{"checkpoints"}, nil, checkpointBody{r.RequestID, r.Label, r.Pin}, &cp)
	return cp, err
}

func (c *Client) Pin(ctx context.Context, id string, number int, pinned bool) (cp host.Checkpoint, err error) {
	err = c.callVM(ctx, "PATCH", id, []string{"checkpoints", strconv.Itoa(number)}, nil, pinBody{&pinned}, &cp)
	return cp, err
}

func (c *Client) Diff(ctx context.Context, r host.DiffRequest) (d host.Diff, err error) {
	q := url.Values{"from": {strconv.Itoa(r.From)}}
	if r.To != nil {
		q.Set("to", strconv.Itoa(*r.To))
	}
	err = c.callVM(ctx, "GET", r.ID, []string{"diff"}, q, nil, &d)
	return d, err
}

func (c *Client) Ledger(ctx context.Context, id string) (entries []store.LedgerEntry, err error) {
	err = c.callVM(ctx, "GET", id, []string{"ledger"}, nil, nil, &entries)
	return entries, err
}

func (c *Client) Execs(ctx context.Context, id string) (list []guest.ExecInfo, err error) {
	err = c.callVM(ctx, "GET", id, []string{"execs"}, nil, nil, &list)
	return list, err
}

func (c *Client) Bundles(ctx context.Context) (list []host.Bundle, err error) {
	err = c.call(ctx, "GET", "/v1/host/bundles", nil, &list)
	return list, err
}

func (c *Client) RemoveBundle(ctx context.Context, name string) error {
	if name == "" || name == "." || name == ".." {
		return host.Errorf(host.CodeInvalid, "give a name, as flash bundle ls shows it", "%q is no name", name)
	}
	return c.call(ctx, "DELETE", "/v1/host/bundles/"+url.PathEscape(name), nil, nil)
}

func (c *Client) Info(ctx context.Context) (info host.Info, err error) {
	err = c.call(ctx, "GET", "/v1/host/info", nil, &info)
	return info, err
}
