package main

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const minSeedBytes = 32 // the generator's own key

// generator is the kernel's, kept open from the agent's start on: a restored guest is spared the opening.
type generator struct{ fd int }

func openGenerator() (generator, error) {
	fd, err := unix.Open("/dev/urandom", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return generator{}, fmt.Errorf("open the kernel's generator: %w", err)
	}
	return generator{fd}, nil
}

// reseed credits the seed to the kernel's generator and makes it use it at once. Adding alone isn't enough: two restores of
// one checkpoint that only added went on to give equal numbers for a while.
func (g generator) reseed(seed []byte) error {
	if len(seed) < minSeedBytes {
		return fmt.Errorf("a seed of %d bytes is too short to reseed the kernel's generator", len(seed))
	}
	// struct rand_pool_info { int entropy_count /* bits */; int buf_size /* bytes */; __u32 buf[] }
	info := make([]byte, 8+(len(seed)+3)/4*4)
	binary.NativeEndian.PutUint32(info, uint32(8*len(seed)))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(seed)))
	copy(info[8:], seed)
	err := quickIoctl(g.fd, unix.RNDADDENTROPY, info)
	clear(info)
	if err != nil {
		return fmt.Errorf("reseed the kernel's generator: add entropy: %w", err)
	}
	if err := quickIoctl(g.fd, unix.RNDRESEEDCRNG, nil); err != nil {
		return fmt.Errorf("reseed the kernel's generator: use the entropy: %w", err)
	}
	return nil
}
