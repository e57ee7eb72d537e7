package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readmeSays is what the README's commands must print, by the command. Commands that aren't here need only succeed.
var readmeSays = map[string][]string{
	"make demo":                      {`✓ the files are back`, `✓ the memory is back`, `every step held`},
	"bin/flash bundle build busybox": {`^bundle busybox, a disk of`},
	"bin/flash run --bundle busybox --id agent-1 --vcpus 1 --mem-mib 512 --checkpoints --detach": {`^agent-1 is running$`},
	"bin/flash history agent-1":                        {`^1 .*mkdir -p /work/project .*exit 0$`, `^2 ● .* rm -rf /work/project +exit 0$`},
	"bin/flash rewind agent-1 2":                       {`^agent-1 is at checkpoint 2$`, `^what it left is checkpoint 3; `},
	"bin/flash exec agent-1 -- cat /work/project/file": {`^precious$`},
	"bin/flash fork agent-1 --from 2 --count 2":        {`^agent-1-fork-1 +running `, `^agent-1-fork-2 +running `},
	"bin/flash ps":               {`^agent-1 +running `, `^agent-1-fork-1 +running `, `^agent-1-fork-2 +running `},
	"bin/flash push agent-1 far": {`^agent-1 is there with [34] checkpoints`},
	"bin/flash --home /tmp/flash-b fork far:agent-1 --from 2":                     {`^agent-1-fork-1 +running `},
	"bin/flash --home /tmp/flash-b exec agent-1-fork-1 -- cat /work/project/file": {`^precious$`},
	"bin/flash check far": {`^all is well$`},
	"make demo-s3":        {`✓ … it goes on where it was`, `every step held`},
	"bin/flash rm --force agent-1 agent-1-fork-1 agent-1-fork-2": {`^agent-1 is removed$`, `^agent-1-fork-2 is removed$`},
}

// TestREADMEDoesWhatItSays runs every command of the README's code blocks, in order, as a newcomer does.
func TestREADMEDoesWhatItSays(t *testing.T) {
	f := needGuests(t)
	text, err := os.ReadFile(filepath.Join(f.root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := readmeCommands(string(text))
	said := map[string]bool{}
	for _, command := range commands {
		r := f.shell(command)
		if r.code != 0 {
			t.Fatalf("%s: %s", command, r)
		}
		for _, want := range readmeSays[command] {
			if !regexp.MustCompile(`(?m)` + want).MatchString(r.stdout) {
				t.Errorf("%s: it doesn't print %s:\n%s", command, want, r.stdout)
			}
		}
		said[command] = true
	}
	for command := range readmeSays {
		if !said[command] {
			t.Errorf("the README has no command %q", command)
		}
	}
	if out := f.must(t, "ps"); strings.Contains(out, "agent-1") || strings.Contains(out, "demo-") { // others' VMs may be there
		t.Errorf("the README leaves VMs: %s", out)
	}
}

// readmeCommands gives the lines of the ```sh blocks.
func readmeCommands(text string) []string {
	var commands []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```sh":
			inside = true
		case line == "```":
			inside = false
		case inside && line != "" && !strings.HasPrefix(line, "#"):
			commands = append(commands, line)
		}
	}
	return commands
}
