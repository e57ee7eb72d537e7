// Package fake is an engine whose machines live in this process and behave deterministically, for tests on any OS.
package fake
