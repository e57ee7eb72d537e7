package offsite

import (
	"errors"
	"time"
)

// lease is a push in flight, as it lies in the bucket: what no collection may remove until it ends.
type lease struct {
	object
	Host     HostID    `json:"host"`
	HostName string    `json:"host_name"`
	VM       string    `json:"flashvm"`
	Began    time.Time `json:"began"`
	Renewed  uint64    `json:"renewed"` // how often: so that every renewal is another version
	Packs    []packID  `json:"packs"`   // there or on their way, ascending
}

const kindLease = "lease"

func decodeLease(p []byte) (*lease, error) {
	l := &lease{}
	if err := decodeObject(p, kindLease, l); err != nil {
		return nil, err
	}
	return l, checkHost(kindLease, l.Host)
}

func checkHost(kind string, h HostID) error {
	if h == (HostID{}) {
		return errors.Join(errors.New(kind+": it names no host"), ErrFormat)
	}
	return nil
}
