package main

import (
	"reflect"
	"testing"
)

func TestJobArrivesAsItWasSent(t *testing.T) {
	sent := job{Command: []string{"sh", "-c", "echo 'a  b' \"$HOME\"\n\x00ü"}, Dir: "/some where", Env: []string{"A=1", "B=x y"}}
	data, err := sent.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeJob(data); err != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestIncompleteJobIsRefused(t *testing.T) {
	for _, text := range []string{"", "{}", `{"command":["x"]}`, `{"dir":"/"}`, "null"} {
		if j, err := decodeJob([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, j)
		}
	}
}
