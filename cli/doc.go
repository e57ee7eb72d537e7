// Package cli is flash's command tree, one file a command: flags → request → call → render. It decides nothing; every
// command is a client of host.API behind the daemon's socket, and the daemon is this same program, run as flash serve.
//
// Terms: the home is the folder of all state (--home, FLASH_HOME); the daemon is the process that has it open.
//
// Output: for a human on a terminal, tables and trees; with --json the same structs as JSON, on stdout. Errors: one line
// "flash: …" and one "hint: …" on stderr; with --json the object {"error":{"code","message","remedy"}} on stdout instead,
// so that a program reads one stream. Exit codes: 0; 1 refused or failed; 2 wrong usage; of exec 125 when the command
// never ran, else the command's own.
//
// Files: root.go the tree; app.go what every command shares; daemon.go finding and starting the daemon; wire.go builds
// the host from its parts, here and nowhere else; render_*.go what output looks like.
package cli
