package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// loggedSandbox makes a sandbox with a name that never ran, and returns the log of it.
func loggedSandbox(t *testing.T, name string) (env []string, log string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	env = []string{sandbox.EnvHome + "=" + home}
	if got := msb(t, env, "create", "-q", "--disk", "64M", name); got.code != 0 {
		t.Fatalf("create: %+v", got)
	}
	return env, filepath.Join(home, "sandboxes", name, "audit.jsonl")
}

// TestStartsForFilesAreAnnounced: what needs the files of a sandbox that is stopped boots a machine first, which takes its time.
// No machine can be started here.
func TestStartsForFilesAreAnnounced(t *testing.T) {
	t.Parallel()
	env, _ := loggedSandbox(t, "web")
	env = append(env, "PATH="+t.TempDir(), "MSB_LIBDIR="+t.TempDir())
	for line, want := range map[string]bool{
		"cp web:/etc x": true, "cp -q web:/etc x": false, "diff web": true, "apply web": true, "apply -q web": false,
	} {
		got := msb(t, env, strings.Fields(line)...)
		if got.code == 0 || got.out != "" || strings.Contains(got.err, "msb: web is stopped: it is started for this") != want {
			t.Errorf("msb %s: %+v", line, got)
		}
	}
}

// TestNothingIsStartedForFaultyCopies: what this machine can tell to be wrong is said before a machine boots.
func TestNothingIsStartedForFaultyCopies(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := []string{sandbox.EnvHome + "=" + home + "/home", "PATH=" + t.TempDir(), "MSB_LIBDIR=" + t.TempDir()}
	if got := msb(t, env, "create", "-q", "--disk", "64M", "-v", t.TempDir()+":/work", "--tmpfs", "/mem", "web"); got.code != 0 {
		t.Fatalf("create: %+v", got)
	}
	for line, want := range map[string]string{
		"cp nosuch web:/x": "there is no nosuch on this machine", "cp web:/work/a .": "msb start web", "cp web:/mem/a .": "msb start web", "cp " + home + " web:/work/a": "msb start web",
		"volume cp nosuch:/x .": "no such volume", "volume cp nosuch data:/x": "there is no nosuch on this machine",
	} {
		if got := msb(t, env, strings.Fields(line)...); got.code == 0 || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("msb %s: %+v, want %q", line, got, want)
		}
	}
}

func logged(t *testing.T, path string, evs ...audit.Event) {
	t.Helper()
	log, err := audit.OpenLog(path, audit.Options{MaxBytes: 400})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range evs {
		log.Emit(ev)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestEventsShowsTheLog(t *testing.T) {
	env, path := loggedSandbox(t, "web")
	msb := func(args ...string) result { t.Helper(); return msb(t, env, args...) }
	if got := msb("events", "web"); got.code != 0 || !strings.HasSuffix(got.out, " sandbox.create builtin\n") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("one that never ran: %+v", got)
	}
	logged(t, path, deniedFlow("", "10.0.0.1", "tcp", "special_address", 80), deniedFlow("", "93.184.215.14", "tcp", "rule", 443), asked("evil\x1b[2J\u202e.example", "no_rule"))
	all := msb("events", "web")
	if all.code != 0 || strings.Count(all.out, "\n") != 4 || !strings.Contains(all.out, "deny    tcp 10.0.0.1:80") {
		t.Errorf("%+v", all)
	}
	if strings.ContainsAny(all.out, "\x1b\u202e") {
		t.Errorf("a guest's name reaches the terminal: %q", all.out)
	}
	const remedy = "; write `msb policy trust p.toml`"
	logged(t, path, audit.Event{Kind: audit.PolicyReload, Action: "deny", Message: strings.Repeat("a fault and its remedy\n", 100) + remedy})
	if got := msb("events", "web"); !strings.Contains(got.out, remedy+"\n") || strings.Count(got.out, "a fault and its remedy; ") != 100 {
		t.Errorf("a remedy is cut off: %s", got.out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	logged(t, path, audit.Event{Kind: audit.FlowOpen, Action: "allow", Proto: "tcp", Host: "fine.example"})
	if got := msb("events", "--denied", "web"); got.code != 0 || strings.Count(got.out, "\n") != 3 || strings.Contains(got.out, "fine.example") {
		t.Errorf("--denied: %+v", got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := msb("events", "--json", "web"); got.code != 0 || !strings.HasSuffix(got.out, string(want)) || strings.Count(got.out, "\n") != 5 {
		t.Errorf("--json: %q, want it to end with %q", got.out, want)
	}
	for name, args := range map[string][]string{"no such sandbox": {"nosuch"}, "lower-case letters": {"../web"}, "name the sandbox": {}} {
		if got := msb(append([]string{"events"}, args...)...); got.code == 0 || !strings.Contains(got.err, name) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestEventsFollowUntilRemoval(t *testing.T) {
	env, path := loggedSandbox(t, "web")
	cmd := command(t, env, "events", "-f", "--json", "web")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		all, _ := io.ReadAll(io.TeeReader(out, writerFunc(func(p []byte) {
			for range bytes.Count(p, []byte("\n")) {
				lines <- ""
			}
		})))
		lines <- string(all)
	}()
	<-lines      // the creation
	const n = 12 // over several rotations
	for i := range n {
		logged(t, path, audit.Event{Kind: audit.FlowOpen, Port: uint16(i + 1)})
		<-lines // it was seen before the next is written
	}
	if got := msb(t, env, "rm", "web"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	<-lines // the removal
	all := <-lines
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	if !strings.HasSuffix(all, `"kind":"sandbox.remove"}`+"\n") {
		t.Errorf("it does not end with the removal: %s", all)
	}
	for i := range n {
		if c := strings.Count(all, fmt.Sprintf("\"port\":%d}", i+1)); c != 1 {
			t.Errorf("line %d came %d times", i+1, c)
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
