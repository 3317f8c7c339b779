//go:build !vmtest

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// aProgram is a script in the place of msb, which starts it as a supervisor: descriptor 3 has the plan, 4 takes status lines,
// and 5 ends with the caller.
func aProgram(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "msb")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	return path
}

// TestFailedStartsSayWhy: the supervisor's own reason with its kind, or what it wrote before it died. Nothing of the run is
// left. Not parallel: it forks.
func TestFailedStartsSayWhy(t *testing.T) {
	for what, c := range map[string]struct {
		script  string
		kind    Kind
		notices []string
		says    []string
		not     string
	}{
		"a reason": {`echo '{"notice":"careful"}' >&4; echo '{"failed":{"kind":"lifetime","message":"it broke"}}' >&4`, KindLifetime, []string{"careful"}, []string{"it broke"}, "careful"},
		"a crash":  {`echo first line >&2; printf '%04000d\n' 0 >&2; echo goroutine 1 >&2; exit 2`, KindOf(ErrSupervisor), nil, []string{ErrSupervisor.Error(), "goroutine 1"}, "first line"},
		"nothing":  {`exit 0`, KindOf(ErrSupervisor), nil, []string{ErrSupervisor.Error()}, ":"},
	} {
		h, root := newHome(t), t.TempDir()
		for _, name := range []string{"", "web"} {
			cfg := operation{Home: h.Dir(), Root: root, Name: name}.config()
			var notices []string
			cfg.Program, cfg.Notice = aProgram(t, c.script), func(n string) { notices = append(notices, n) }
			_, err := Start(t.Context(), cfg)
			if err == nil || KindOf(err) != c.kind || strings.Contains(err.Error(), c.not) || !slices.Equal(notices, c.notices) {
				t.Errorf("%s, %q: %v of kind %q, notices %q", what, name, err, KindOf(err), notices)
			}
			for _, says := range c.says {
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %q: %v; want %q", what, name, err, says)
				}
			}
			leavesNoRuns(t, h)
			if all, err := h.List(); err != nil || len(all) > 0 {
				t.Errorf("%s, %q: %+v is left, %v", what, name, all, err)
			}
		}
	}
}

// TestI13_ImpossibleStartsLeaveNothing: there is no program, or the disk is full. A sandbox that was there
// before can be used by the next command. Not parallel: it forks.
func TestI13_ImpossibleStartsLeaveNothing(t *testing.T) {
	small, err := OpenHome(filepath.Join(aRoomOf1MiB(t), "state"))
	must(t, err)
	for what, c := range map[string]struct {
		home    *Home
		program string
		want    error
	}{
		"no program":  {newHome(t), filepath.Join(t.TempDir(), "nosuch"), os.ErrNotExist},
		"a full disk": {small, aProgram(t, "exit 0"), syscall.ENOSPC},
	} {
		root := t.TempDir()
		must(t, Create(t.Context(), operation{Home: c.home.Dir(), Root: root, Name: "web"}.config()))
		_, err := StartNamed(t.Context(), "web", StartOptions{Home: c.home.Dir(), Program: c.program})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		run, err := lockNamed(c.home, "web")
		if err != nil {
			t.Fatalf("behind %s: %v", what, err)
		}
		must(t, run.lock.Close())
		for _, name := range []string{"", "new"} {
			cfg := operation{Home: c.home.Dir(), Root: root, Name: name}.config()
			cfg.Program = c.program
			if _, err := Start(t.Context(), cfg); !errors.Is(err, c.want) {
				t.Errorf("%s, %q: %v, want %v", what, name, err, c.want)
			}
			leavesNoRuns(t, c.home)
			if all, err := c.home.List(); err != nil || len(all) != 1 {
				t.Errorf("%s, %q: %+v, %v; want web alone", what, name, all, err)
			}
		}
	}
}

// TestI13_CancelledStartsEnd as soon as they are cancelled: their supervisor is told, and none of its files are left. Not
// parallel: it forks.
func TestI13_CancelledStartsEnd(t *testing.T) {
	for _, name := range []string{"", "web"} {
		h, dir := newHome(t), t.TempDir()
		waits, late := filepath.Join(dir, "waits"), filepath.Join(dir, "late")
		cfg := operation{Home: h.Dir(), Root: t.TempDir(), Name: name}.config()
		cfg.Program = aProgram(t, "trap '' TERM; touch "+waits+"; timeout 20 cat <&5 >/dev/null || touch "+late)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := Start(ctx, cfg); ended <- err }()
		await(t, "the supervisor is there", func() bool { return there(t, waits) })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || there(t, late) {
			t.Errorf("%q: %v; the supervisor was left to itself: %t", name, err, there(t, late))
		}
		leavesNoRuns(t, h)
		if all, err := h.List(); err != nil || len(all) > 0 {
			t.Errorf("%q: %+v is left, %v", name, all, err)
		}
	}
}

// TestSupervisorsHaveTheirOwnGroup: Ctrl-C in the terminal is for the guest. One that outlives its caller also has no
// terminal that could hang up. Not parallel: it forks.
func TestSupervisorsHaveTheirOwnGroup(t *testing.T) {
	session, err := unix.Getsid(0)
	must(t, err)
	for _, name := range []string{"", "web"} {
		h, root := newHome(t), t.TempDir()
		must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
		sb, err := Start(t.Context(), operation{Home: h.Dir(), Root: root, Name: name}.config())
		must(t, err)
		pid := sb.cmd.Process.Pid
		group, err := unix.Getpgid(pid)
		must(t, err)
		in, err := unix.Getsid(pid)
		must(t, err)
		if group != pid || (in == pid) != (name != "") || name == "" && in != session {
			t.Errorf("%q: process %d is of group %d and session %d, the caller of session %d", name, pid, group, in, session)
		}
		must(t, sb.Stop(t.Context()))
	}
}

// TestI12_UnrecordedEndsAreReported: the next start and msb ls would not know how the run ended. Not parallel: it forks.
func TestI12_UnrecordedEndsAreReported(t *testing.T) {
	h := aRunning(t, nil)
	must(t, os.Mkdir(namedPath(h, "web", state.EndFile), 0o700)) // as on a disk that can't be written to
	if err := h.Stop(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "could not be recorded in "+namedPath(h, "web")) {
		t.Errorf("%v", err)
	}
	if err := h.Stop(t.Context(), "web"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("it runs on: %v", err)
	}
}
