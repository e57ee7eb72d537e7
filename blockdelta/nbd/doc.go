// Package nbd serves an overlay to a machine in another process over the NBD protocol.
package nbd
