package bucket_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"flash/cas/bucket"
)

func TestKeysThatMightEscapeAreRefused(t *testing.T) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", "a..b", ".", "./a", "a/./b", "a/.",
		"a\x00b", "a\nb", "ä", "a\x7f", strings.Repeat("k", bucket.MaxKeyBytes+1)} {
		if err := bucket.CheckKey(key); !errors.Is(err, bucket.ErrKey) {
			t.Errorf("CheckKey(%q) = %v", key, err)
		}
	}
	for _, key := range []string{"a", "flash.json", "packs/0123.pack", "vms/a%20b", "x/=ff", ".hidden", "a b", "~", strings.Repeat("k", bucket.MaxKeyBytes)} {
		if err := bucket.CheckKey(key); err != nil {
			t.Error(err)
		}
	}
	for _, prefix := range []string{"", "packs/", "packs/01", ".h"} {
		if err := bucket.CheckPrefix(prefix); err != nil {
			t.Error(err)
		}
	}
}

func TestConditionAsksForOneState(t *testing.T) {
	if err := bucket.CheckCondition(bucket.Condition{Absent: true, Match: "v"}); !errors.Is(err, bucket.ErrKey) {
		t.Errorf("both: %v", err)
	}
	for _, c := range []bucket.Condition{{}, {Absent: true}, {Match: "v"}} {
		if err := bucket.CheckCondition(c); err != nil {
			t.Error(err)
		}
	}
}

// What passes is a path that stays where it is put.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"a/b", "../x", "a//b", "/a", "a/", ".", "a/.b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if bucket.CheckKey(key) != nil {
			return
		}
		if joined := path.Join("/root", key); joined != "/root/"+key {
			t.Errorf("%q becomes %q", key, joined)
		}
	})
}
