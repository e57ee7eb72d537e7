package qemu

import (
	"errors"
	"fmt"
	"strings"

	"flash/memtrack"
	"flash/memtrack/pagemap"
	"flash/vmm"
)

// restrictions are the words of Config.Memory. Each makes the engine work as on a host that offers less, with the same
// code, so that what such hosts run on is tried here too:
//
//	eager         without userfaultfd for absent pages: a restore first reads the whole memory, and nothing is shared
//	soft-dirty    tracking as before Linux 6.7; refused where the kernel hasn't got it
//	hash-compare  tracking as where the kernel tells nothing
var restrictions = []string{"eager", "soft-dirty", "hash-compare"}

// parseRestrictions takes Config.Memory apart.
func parseRestrictions(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	words := strings.Split(text, ",")
	trackers := 0
	for _, word := range words {
		switch word {
		case "eager":
		case "soft-dirty", "hash-compare":
			trackers++
		default:
			return nil, fmt.Errorf("%q is no restriction of memory; there are %s", word, strings.Join(restrictions, ", "))
		}
	}
	if trackers > 1 {
		return nil, errors.New("memory is tracked in one way: " + text)
	}
	return words, nil
}

// restrict takes away what the restrictions say, and notes them as the reason.
func (s *memorySupport) restrict(words []string) error {
	for _, word := range words {
		reason := "the configuration says " + word
		switch word {
		case "eager":
			s.lazy, s.shared = false, false
			s.reasons["lazy memory"], s.reasons["shared memory"] = reason, reason
		case (&pagemap.SoftDirty{}).Name():
			if s.tracker != word {
				if err := pagemap.ProbeSoftDirty(); err != nil {
					return fmt.Errorf("%s: %w: %w", reason, err, vmm.ErrUnsupported)
				}
			}
			s.tracker, s.reasons["pagemap-scan"] = word, reason
		case (&memtrack.HashTracker{}).Name():
			s.tracker, s.reasons["pagemap-scan"], s.reasons["soft-dirty"] = word, reason, reason
		}
	}
	return nil
}
