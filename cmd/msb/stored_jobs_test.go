package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox"
)

// stopped makes a sandbox that doesn't run and returns the environment that it is in, and the directory of its jobs.
func stopped(t *testing.T, name string, flags ...string) (env []string, jobs string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	env = []string{sandbox.EnvHome + "=" + home}
	if got := msb(t, env, slices.Concat([]string{"create", "-q", "--disk", "64M"}, flags, []string{name})...); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	jobs = filepath.Join(home, "sandboxes", name, "jobs")
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		t.Fatal(err)
	}
	return env, jobs
}

// TestJobsAreReadWithoutTheirGuest: what ended jobs of a sandbox that is stopped wrote, and how they ended.
func TestJobsAreReadWithoutTheirGuest(t *testing.T) {
	t.Parallel()
	env, jobs := stopped(t, "web")
	ended := time.Now()
	for name, st := range map[string]sandbox.JobStatus{
		"main": {State: sandbox.JobExited, Code: 3}, "killed": {State: sandbox.JobKilled, Code: 137, Signal: 9, OOMKilled: true}, "slow": {State: sandbox.JobKilled, Code: 143, Signal: 15, TimedOut: true},
	} {
		st.Name, st.Command, st.Started, st.Ended = name, []string{"tool", "\x1b[2J"}, ended.Add(-time.Hour), &ended
		b, err := json.Marshal(st)
		if err == nil {
			err = os.WriteFile(filepath.Join(jobs, name+".json"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(jobs, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := joblog.NewWriter(jobs, "main")
	for _, part := range []struct {
		of   joblog.Stream
		text string
	}{{joblog.Stdout, "one\n"}, {joblog.Stderr, "an error\n"}, {joblog.Stdout, "two\n"}} {
		if _, err := w.Stream(part.of).Write([]byte(part.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]result{
		"logs web":                       {out: "one\ntwo\n", err: "an error\n"},
		"job logs web main":              {out: "one\ntwo\n", err: "an error\n"},
		"logs -n 1 web":                  {out: "two\n"},
		"logs -n 0 web":                  {},
		"logs -f web":                    {out: "one\ntwo\n", err: "an error\n"},
		"logs --grep ^t web":             {out: "two\n"},
		"logs --since 2000000000000 web": {},
		"wait web":                       {out: "3\n"},
		"job wait web main killed slow":  {out: "3\n137\n143\n"},
	} {
		if got := msb(t, env, strings.Fields(args)...); got != want {
			t.Errorf("msb %s: %+v, want %+v", args, got, want)
		}
	}
	got := msb(t, append(env, "TZ=Asia/Tokyo"), "logs", "-t", "-n", "1", "web")
	at, err := time.Parse(time.RFC3339Nano, strings.Fields(got.out + " x")[0])
	if err != nil || time.Since(at).Abs() > time.Hour || !strings.HasSuffix(got.out, "Z two\n") {
		t.Errorf("%+v, %v", got, err)
	}
	got = msb(t, env, "logs", "--json", "web")
	for _, part := range []string{`"stream":"stdout","text":"one\n"`, `"stream":"stderr","text":"an error\n"`} {
		if !strings.Contains(got.out, part) || got.err != "" {
			t.Errorf("%+v, want %s", got, part)
		}
	}
	got = msb(t, env, "job", "ls", "web")
	for _, part := range []string{"exited 3", "SIGKILL, out of memory", "SIGTERM, timed out", "damaged", "1h ago"} {
		if !strings.Contains(got.out, part) || strings.Contains(got.out, "\x1b") {
			t.Errorf("%+v, want %s", got, part)
		}
	}
	for args, code := range map[string]int{"job wait web none": exitSandbox, "job logs web none": exitSandbox, "job kill web main": exitSandbox, "job kill -s 0 web main": exitOther, "job kill -s 65 web main": exitOther, "kill -s x web": exitOther} {
		if got := msb(t, env, strings.Fields(args)...); got.code != code || got.out != "" {
			t.Errorf("msb %s: %+v, want %d", args, got, code)
		}
	}
	// One that is damaged can be removed, and what can't be found holds nothing up.
	got = msb(t, env, "job", "rm", "web", "none", "bad", "main")
	left, err := os.ReadDir(jobs)
	if got.code == 0 || got.out != "bad\nmain\n" || err != nil || len(left) != 2 {
		t.Errorf("%+v; left: %v, %v", got, left, err)
	}
}

// TestManyAreChosenByTheirState: a sandbox that is stopped can't be stopped again, and that is no error when it is named.
func TestManyAreChosenByTheirState(t *testing.T) {
	t.Parallel()
	env, _ := stopped(t, "web", "-l", "team=web", "-l", "empty", "-e", "A=\x1b[2J")
	for _, c := range []struct {
		args string
		code int
		out  string
	}{
		{"stop web", 0, "web\n"}, {"stop -a", 0, ""}, {"stop --filter label=team=web", 0, ""}, {"stop", exitOther, ""}, {"stop -a web", exitOther, ""}, {"stop -a --filter label=team", exitOther, ""},
		{"stop --filter team=web", exitOther, ""}, {"stop nosuch web", exitSandbox, "web\n"},
		{"ls -q --filter label=team", 0, "web\n"}, {"ls -q --filter label=team=web --filter label=empty", 0, "web\n"}, {"ls -q --filter label=team=", 0, ""}, {"ls -q --filter label=empty=", 0, "web\n"}, {"ls -q --filter label=none", 0, ""},
		{"env ls web", 0, "A=\\x1b[2J\n"}, {"rename web shop", 0, "shop\n"}, {"ls -q", 0, "shop\n"}, {"rm --filter label=team=other", 0, ""}, {"rm -a", 0, "shop\n"}, {"ls -q", 0, ""},
	} {
		if got := msb(t, env, strings.Fields(c.args)...); got.code != c.code || got.out != c.out {
			t.Errorf("msb %s: %+v, want %d and %q", c.args, got, c.code, c.out)
		}
	}
	damaged, fine, running := sandbox.Status{Problem: "damaged"}, sandbox.Status{}, sandbox.Status{Running: true}
	if isStopped(&damaged) || !isStopped(&fine) || isStopped(&running) || runs(&damaged) || runs(&fine) || !runs(&running) || !anyState(&damaged) || isPaused(&running) {
		t.Error("a sandbox is in another state")
	}
}

// TestStatesInAFewWords: what msb ls says, where the first that applies counts.
func TestStatesInAFewWords(t *testing.T) {
	t.Parallel()
	now := time.Now()
	began := now.Add(-90 * time.Minute)
	info := &sandbox.Info{}
	for want, s := range map[string]sandbox.Status{
		"starting": {Running: true}, "paused": {Running: true, Info: info, Paused: true, PolicyRefused: "why"}, "up, new policy refused": {Running: true, Info: info, PolicyRefused: "why", Started: &began},
		"up 1h": {Running: true, Info: info, Started: &began}, "up": {Running: true, Info: info}, "stopped": {},
	} {
		if got := stateOf(&s, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59 * time.Minute: "59m", time.Hour: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 71 * time.Hour: "2d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if row := statusRow(&sandbox.Status{Name: "x", Problem: "\x1b[2J"}, now); row[1] != "damaged" || strings.Contains(row[2], "\x1b") {
		t.Errorf("%q", row)
	}
}

// TestPlacesOfCopies: which argument of msb cp is on this machine, and what of a path in the guest counts.
func TestPlacesOfCopies(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]place{
		"file": {"", "file"}, "/a:b": {"", "/a:b"}, "./a:b": {"", "./a:b"}, "../a:b": {"", "../a:b"}, "-": {"", "-"},
		"web:/x": {"web", "/x"}, "web:x": {"web", "/x"}, "web:/x/.": {"web", "/x/."}, "web:.": {"web", "/"}, "web:x/./": {"web", "/x/"}, "web:/x/": {"web", "/x/"}, "web:/../x": {"web", "/x"}, "web:/a:b": {"web", "/a:b"}, "web:/": {"web", "/"},
	} {
		if got, err := parsePlace(arg); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", arg, got, err, want)
		}
	}
	for _, pair := range [][2]string{{"", "web:/x"}, {"web:", "x"}, {":x", "y"}, {"a:/x", "b:/y"}, {"x", "y"}} {
		if _, _, err := parsePlaces(pair[0], pair[1]); !errors.As(err, new(*copyUsage)) {
			t.Errorf("%q: %v", pair, err)
		}
	}
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	none := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	if err := plainError(full); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if err := plainError(fmt.Errorf("copy: %w", none)); errors.Is(err, fs.ErrNotExist) || err.Error() != "copy: open x: file does not exist" {
		t.Errorf("a missing file: %v", err)
	}
}
