// Package vmmtest is the conformance suite every engine passes.
package vmmtest
