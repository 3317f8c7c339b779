package main

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func TestVolumes(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]sandbox.Directory{
		".:/work":         {Host: ".", Guest: "/work"},
		"/a:/b:ro":        {Host: "/a", Guest: "/b"},
		"./a:/b/../c/:rw": {Host: "./a", Guest: "/c", Writable: true},
		"./a:/b:cow":      {Host: "./a", Guest: "/b", CopyOnWrite: true},
		"/a:b/c:d:/e:rw":  {Host: "/a:b/c:d", Guest: "/e", Writable: true},
	} {
		if got, err := policies.ParseDirectory(v); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", v, got, err, want)
		}
	}
	for v, words := range map[string]string{
		"": "HOST:GUEST", "/a": "HOST:GUEST", ":/a": "HOST:GUEST", "/a:b": "HOST:GUEST", "/a:": "HOST:GUEST",
		"/a:/b:COW": "ro, rw or cow", "/a:/b:z": "ro, rw or cow", "/a:/b:": "ro, rw or cow", "data:/b": "./data",
	} {
		if got, err := policies.ParseDirectory(v); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %+v, %v; want %q", v, got, err, words)
		}
	}
}
