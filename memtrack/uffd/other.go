//go:build !linux

package uffd

// Support says what works here: nothing.
type Support struct{ Missing, Async, Inject, Others bool }

// Probe says that only Linux has userfaultfd.
func Probe() (Support, map[string]string) {
	const reason = "only Linux has userfaultfd"
	return Support{}, map[string]string{"missing": reason, "async": reason, "inject": reason, "others": reason}
}
