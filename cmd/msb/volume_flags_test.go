package main

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// TestDockersVolumesHaveRemedies: what docker takes after -v, and msb doesn't, says what to write.
func TestDockersVolumesHaveRemedies(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]string{
		"./a:/b:z": "leave out z,", "./a:/b:rw,Z": "leave out Z,", "./a:/b:ro,rshared,cached": "leave out rshared and cached,",
		"data:/b:nocopy": "leave out nocopy,", "/b": "write NAME:/b",
	} {
		if _, _, err := parseVolumes([]string{v}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-v %s: %v, want %q", v, err, want)
		}
	}
	if _, _, err := parseVolumes([]string{"./a:/z:rox"}); err == nil || strings.Contains(err.Error(), "leave out") {
		t.Errorf("%v", err)
	}
}

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
