package offsite

import (
	"fmt"
	"time"

	"flash/cas"
)

// condemned is the one object that collections move: who collects now, and what is to go.
type condemned struct {
	object
	Collector *collector      `json:"collector"` // null: nobody collects
	Packs     []condemnedPack `json:"packs"`
	// Tombstones are VMs whose refs were removed long ago: these refs are being deleted.
	Tombstones []string `json:"tombstones,omitempty"`
}

// collector is the collection that runs. It is dead when the object hasn't changed for leaseTime.
type collector struct {
	Host     HostID    `json:"host"`
	HostName string    `json:"host_name"`
	Run      string    `json:"run"` // random
	Began    time.Time `json:"began"`
	Renewed  uint64    `json:"renewed"`
}

// condemnedPack is one that nothing reached.
//
//	(kept) ──nothing reaches it──▶ condemned ──grace is over──▶ deleting ──nothing reaches it still──▶ (gone)
//	   ▲──────something reaches it────┘──────────something reaches it──┘
type condemnedPack struct {
	Pack    packID    `json:"pack"`
	Content cas.Hash  `json:"content"` // names the object
	Bytes   int64     `json:"bytes"`
	Since   time.Time `json:"since"`
	State   string    `json:"state"`
}

const (
	kindCondemned  = "condemned"
	stateCondemned = "condemned"
	stateDeleting  = "deleting"
)

func decodeCondemned(p []byte) (*condemned, error) {
	c := &condemned{}
	if err := decodeObject(p, kindCondemned, c); err != nil {
		return nil, err
	}
	if c.Collector != nil {
		if err := checkHost(kindCondemned, c.Collector.Host); err != nil {
			return nil, err
		}
	}
	for _, k := range c.Packs {
		if k.State != stateCondemned && k.State != stateDeleting || k.Bytes < 0 || k.Content.IsZero() {
			return nil, fmt.Errorf("%s: pack %s of %d bytes is %.40q: %w", kindCondemned, k.Pack, k.Bytes, k.State, ErrFormat)
		}
	}
	return c, nil
}

// deleting gives the packs that are being removed.
func (c *condemned) deleting() map[cas.PackID]bool {
	going := map[cas.PackID]bool{}
	for _, k := range c.Packs {
		if k.State == stateDeleting {
			going[cas.PackID(k.Pack)] = true
		}
	}
	return going
}
