package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Guest is the process that remembers, and how to speak with it by shell commands. It has a nonce, a counter that runs, and
// a tape of the tokens it was given, in its memory; the tokens are on the disk as well.
type Guest struct {
	Begin string                    // starts it
	Look  string                    // prints what it remembers, once it has counted on
	Mark  func(token string) string // gives it a token, waits until it has it, and prints as Look does
	Crash string                    // a command that ends the machine, where nobody else can; "": none
}

// looped is the process: orders come as files, so that one that is cut short leaves nothing half said.
const looped = `mkdir -p /soak && cd /soak && : >tape && setsid sh -c '
nonce=$(cat /proc/sys/kernel/random/uuid)
n=0
tape=
while :; do
  n=$((n+1))
  if [ -e order ]; then
    read token <order
    rm order
    tape="$tape.$token"
    echo $token >>tape
  fi
  echo "$nonce $n $tape" >/run/soak
  sleep 0.1
done' </dev/null >/dev/null 2>&1 &
until [ -s /run/soak ]; do sleep 0.1; done`

// shown waits until the count has grown and prints it all. The file is written anew each time, so it may be caught empty.
const shown = `
set -- $(cat /run/soak)
old=$2
while :; do
  set -- $(cat /run/soak)
  if [ -n "$old" ] && [ -n "$2" ] && [ "$2" -gt "$old" ]; then break; fi
  [ -n "$old" ] || old=$2
  sleep 0.1
done
echo $1 $2 $3
cat /soak/tape`

// LinuxGuest is a process of a Linux guest with a shell.
var LinuxGuest = Guest{
	Begin: looped,
	Look:  shown,
	Mark: func(token string) string {
		return `cd /soak && echo ` + token + ` >order.new && mv order.new order && until grep -q '\.` + token + `$' /run/soak; do sleep 0.1; done` + shown
	},
}

// FakeGuest is what the fake engine's guests can do: their processor is the counter.
var FakeGuest = Guest{
	Begin: `mkdir -p /soak; touch /soak/tape`,
	Look:  `count; cat /soak/tape`,
	Mark: func(token string) string {
		return `echo ` + token + ` >>/soak/tape; fill 3 ` + token + `; count; cat /soak/tape`
	},
	Crash: `crash`,
}

// memory is what a guest remembers.
type memory struct {
	nonce string
	count uint64   // at least
	tape  []string // tokens, oldest first
}

// with gives the memory after one more token.
func (m memory) with(token string) memory {
	m.tape = append(slices.Clip(m.tape), token)
	return m
}

// parseLook reads what Look prints: nonce, count and tape of the process, then the disk's tape; a fake guest has but a count.
func parseLook(out string) (memory, error) {
	first, rest, _ := strings.Cut(out, "\n")
	disk := strings.Fields(rest)
	fields := strings.Fields(first)
	var m memory
	switch len(fields) {
	case 1:
		m.nonce, m.tape = "fake", disk
	case 2, 3:
		m.nonce = fields[0]
		fields = fields[1:]
		if len(fields) == 2 {
			m.tape = strings.Split(strings.TrimPrefix(fields[1], "."), ".")
		}
	default:
		return m, fmt.Errorf("the guest says %.300q", out)
	}
	var err error
	if m.count, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return m, fmt.Errorf("the guest says %.300q: %w", out, err)
	}
	if !slices.Equal(m.tape, disk) {
		return m, fmt.Errorf("memory and disk are of different instants: the process has had %v, the disk has %v", m.tape, disk)
	}
	return m, nil
}

// recalls tells why what a guest remembers can't have come of this; "" when it can.
func (m memory) recalls(of memory) string {
	switch {
	case of.nonce != "" && m.nonce != of.nonce:
		return fmt.Sprintf("the process is %s, not %s", m.nonce, of.nonce)
	case !slices.Equal(m.tape, of.tape):
		return fmt.Sprintf("it has had the tokens %v, not %v", m.tape, of.tape)
	case m.count < of.count:
		return fmt.Sprintf("it counts %d, and had counted %d", m.count, of.count)
	}
	return ""
}
