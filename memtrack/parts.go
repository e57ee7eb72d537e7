package memtrack

import (
	"errors"
	"runtime"
	"sync"
)

const (
	minPartPages = 512 // 2 MiB: below that, starting a thread costs more than it saves
	maxCores     = 4   // memory is no faster with more
)

// inParts lets view copy pages into dst on several cores: a machine is paused then and leaves them idle.
func inParts(pages []uint64, dst []byte, view func(pages []uint64, dst []byte) error) error {
	parts := max(1, min(maxCores, runtime.GOMAXPROCS(0), len(pages)/minPartPages))
	if parts == 1 {
		return view(pages, dst)
	}
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for i := range parts {
		from, to := i*len(pages)/parts, (i+1)*len(pages)/parts
		wg.Go(func() { errs[i] = view(pages[from:to], dst[from*PageBytes:to*PageBytes]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
