package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestPortsThatNobodyChoseAreSaid publishes ports of a sandbox that does not run. No text has 0 for a port of this machine.
func TestPortsThatNobodyChoseAreSaid(t *testing.T) {
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	if got := msb(t, env, "create", "-q", "web"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, c := range []struct{ asked, want string }{
		{"80", "80/tcp" + chosenLater}, {"0:81/udp", "81/udp" + chosenLater},
		{"127.0.0.1:0:82", "127.0.0.1::82/tcp" + chosenLater}, {"[::1]:0:83", "[::1]::83/tcp" + chosenLater}, {"8084:84", "8084:84"},
	} {
		if got := msb(t, env, "port", "add", "web", c.asked); got.code != 0 || got.out != c.want+"\n" {
			t.Errorf("%s: %+v", c.asked, got)
		}
		if p, err := sandbox.ParsePort(strings.TrimSuffix(c.want, chosenLater)); err != nil || p.Guest == 0 { // what is printed can be written
			t.Errorf("%s: %+v, %v", c.want, p, err)
		}
	}
	got := msb(t, env, "port", "ls", "--json", "web")
	for _, want := range []string{`{"port":"80/tcp","host":0,"guest":"80/tcp","hosts":[],"url":""}`, `{"port":"8084:84","host":8084,`} {
		if !strings.Contains(strings.NewReplacer("\n", "", " ", "").Replace(got.out), want) {
			t.Errorf("no %s in %s", want, got.out)
		}
	}
	if got := msb(t, env, "port", "ls", "web"); !strings.Contains(got.out, "chosen at the next start") || strings.Contains(got.out, "0:80") {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "port", "rm", "web", "80"); got.out != "80/tcp"+chosenLater+"\n" {
		t.Errorf("%+v", got)
	}
}
