package cli

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"flash/cli/httpapi"
)

// askTimeout bounds a question to the daemon that isn't worth starting it for.
const askTimeout = 500 * time.Millisecond

type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Daemon  string `json:"daemon,omitempty"` // the running daemon's version; absent when none runs
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "show this program's version, and the running daemon's",
		Args:  cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{Version: Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if home, err := a.homeDir(); err == nil {
				ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
				defer cancel()
				c := httpapi.NewClient(socketPath(home))
				defer c.Close()
				if info, err := c.Info(ctx); err == nil {
					v.Daemon = info.Version
				}
			}
			return a.show(v, func() string {
				s := fmt.Sprintf("flash %s %s/%s %s\n", v.Version, v.OS, v.Arch, v.Go)
				if v.Daemon != "" && v.Daemon != v.Version {
					s += fmt.Sprintf("the running daemon is %s; flash serve --stop ends it, the next command starts this version's\n", v.Daemon)
				}
				return s
			})
		}),
	}
}
