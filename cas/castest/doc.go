// Package castest is the conformance suite of cas.Store, and stores and file systems for tests.
//
// Run is what every cas.Store must pass. NewMemory is the simplest store that passes, with faults to inject: use it
// wherever a test needs a store. CrashFS is a file system in memory whose power can be cut at any operation.
package castest
