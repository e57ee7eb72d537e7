package main

import (
	"testing"
)

func TestAgentInAMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	m := bootVM(t, nil)
	for _, promise := range execPromises {
		t.Run(promise.name, func(t *testing.T) { promise.keep(t, m.place) })
	}
}
