package offsite

import (
	"time"

	"flash/cas"
)

// hold is what a host needs of the bucket and hasn't itself, as it lies there.
type hold struct {
	object
	Host      HostID     `json:"host"`
	HostName  string     `json:"host_name"`
	VM        string     `json:"flashvm"` // its name on that host
	Since     time.Time  `json:"since"`
	Snapshots []cas.Hash `json:"snapshots"` // with all they reach
	Packs     []packID   `json:"packs"`     // whole
}

const kindHold = "hold"

func decodeHold(p []byte) (*hold, error) {
	h := &hold{}
	if err := decodeObject(p, kindHold, h); err != nil {
		return nil, err
	}
	return h, checkHost(kindHold, h.Host)
}
