// Package host is the application: every operation on VMs, one file a verb, with plain request and result structs.
package host
