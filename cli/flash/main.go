// Command flash runs virtual machines whose every command is an undo point.
package main

import (
	"os"

	"flash/cli"
)

func main() { os.Exit(cli.Main()) }
