package httpapi

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flash/store"
	"flash/vmm/host"
)

// measured is a host with a VM that is behind in its remote.
type measured struct {
	host.API
	err error
}

func (m measured) List(context.Context) ([]host.VM, error) {
	since := time.Now().Add(-90 * time.Second)
	return []host.VM{{ID: "agent-1", State: host.StateRunning, Checkpoints: 7,
		Replication: []host.VMLag{{VM: "agent-1", Remote: "far", Checkpoints: 3, Since: &since, Error: "away"}}}}, m.err
}

func (m measured) Info(context.Context) (host.Info, error) {
	return host.Info{Usage: store.Usage{PackBytes: 4096, Budget: 8192}}, nil
}

func TestMetricsTellHowFarReplicationIsBehind(t *testing.T) {
	get := func(api host.API) (int, string) {
		w := httptest.NewRecorder()
		New(Config{API: api}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code, w.Body.String()
	}
	code, body := get(measured{})
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{
		`flash_vms{state="running"} 1`, `flash_vms{state="crashed"} 0`, `flash_vm_checkpoints{flashvm="agent-1"} 7`,
		"flash_store_pack_bytes 4096", "flash_store_budget_bytes 8192",
		`flash_replication_lag_checkpoints{flashvm="agent-1",remote="far"} 3`, `flash_replication_lag_seconds{flashvm="agent-1",remote="far"} 9`,
		`flash_replication_failing{flashvm="agent-1",remote="far"} 1`, "go_goroutines ",
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if code, _ := get(measured{err: errors.New("a host that can't tell")}); code == 200 {
		t.Error("a host that can't tell its VMs is told as one without any")
	}
}
