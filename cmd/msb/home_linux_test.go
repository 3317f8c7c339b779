package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestUnreadableHomesNameTheError: one that its user may not search was said to have no marker. The twin is the same home
// before its mode is changed.
func TestUnreadableHomesNameTheError(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	env := []string{sandbox.EnvHome + "=" + home}
	ls := func() result {
		c := command(t, env, "ls", "-q")
		c.SysProcAttr = alone(0) // a user that is not root, but owns what this one owns
		c.SysProcAttr.UidMappings[0].ContainerID = 1000
		return finish(t, c)
	}
	if got := ls(); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	marker := filepath.Join(home, "msb-home")
	for path, mode := range map[string]os.FileMode{home: 0o600, marker: 0o200} {
		was, err := os.Stat(path)
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := ls(); got.code != exitOther || !strings.Contains(got.err, marker+": permission denied") || strings.Contains(got.err, "no marker") {
			t.Errorf("%s with mode %o: %+v", path, mode, got)
		}
		if err := os.Chmod(path, was.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestI13_SweepsDoNotEnterMounts binds directories of the same file system into the places that every verb sweeps. What
// is in them looks like msb's own; without the mount it goes.
func TestI13_SweepsDoNotEnterMounts(t *testing.T) {
	t.Parallel()
	const left = `leave() { mkdir -m 700 -p "$1" && : > "$1/lock" && : > "$1/console.log" && : > "$1/upper.ext4" && touch -d '1 hour ago' "$1"; }; `
	for _, tt := range []struct{ name, shell, stays string }{
		{"no mount", `leave "$MSB_HOME/run/sb-0123456789ab"`, ""},
		{"a run", `leave "$OUT" && mkdir -m 700 "$MSB_HOME/run/sb-0123456789ab" && mount --bind "$OUT" "$MSB_HOME/run/sb-0123456789ab"`, "out"},
		{"a half-made run", `leave "$OUT" && mkdir -m 700 "$MSB_HOME/run/.sb-0123456789ab" && mount --bind "$OUT" "$MSB_HOME/run/.sb-0123456789ab"`, "out"},
		{"a file in a run", `leave "$OUT" && leave "$MSB_HOME/run/sb-0123456789ab" && mount --bind "$OUT/console.log" "$MSB_HOME/run/sb-0123456789ab/console.log"`, "out home/run/sb-0123456789ab"},
		{"half a sandbox", `leave "$OUT" && mkdir -m 700 "$MSB_HOME/sandboxes/.0123456789ab" && mount --bind "$OUT" "$MSB_HOME/sandboxes/.0123456789ab"`, "out"},
		{"another file system", `mkdir -m 700 "$MSB_HOME/run/sb-0123456789ab" && mount -t tmpfs -o mode=0700 none "$MSB_HOME/run/sb-0123456789ab" && leave "$MSB_HOME/run/sb-0123456789ab" && OUT="$MSB_HOME/run/sb-0123456789ab"`, "mounted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			home := []string{sandbox.EnvHome + "=" + filepath.Join(top, "home"), "OUT=" + filepath.Join(top, "out")}
			if got := msb(t, home, "ls"); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			ls := command(t, home, "ls")
			cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", left + tt.shell + ` && "$0" "$@" && find "$OUT" -type f 2>/dev/null | wc -l`}, ls.Args...)...)
			cmd.Env, cmd.SysProcAttr = ls.Env, alone(syscall.CLONE_NEWNS)
			got := finish(t, cmd)
			if got.code != 0 || tt.stays != "" && !strings.HasSuffix(got.out, "\n3\n") {
				t.Errorf("%+v", got)
			}
			for _, dir := range strings.Fields(tt.stays) {
				if dir == "mounted" {
					continue // it went with its namespace
				}
				for _, name := range []string{"lock", "console.log", "upper.ext4"} {
					if _, err := os.Stat(filepath.Join(top, dir, name)); err != nil {
						t.Error(err)
					}
				}
			}
			if _, err := os.Stat(filepath.Join(top, "home/run/sb-0123456789ab")); tt.stays == "" && err == nil {
				t.Error("the test is moot: without a mount it stays too")
			}
		})
	}
}
