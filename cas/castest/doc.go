// Package castest is the conformance suite of cas.Store, and stores for tests.
package castest
