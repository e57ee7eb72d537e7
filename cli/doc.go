// Package cli is flash's command tree, one file a command.
package cli
