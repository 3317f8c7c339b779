package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// aNamed makes a sandbox that never starts.
func aNamed(t *testing.T, h *Home, name string) error {
	t.Helper()
	cfg := Config{Name: name, Disk: 64 << 20, Policy: policies.Default()}
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	lock, err := makeNamed(h, newStored(name, &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
	if err != nil {
		return err
	}
	return lock.Close()
}

func TestI14_NamesOfSandboxesAreOneLabel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "web-1", "0", strings.Repeat("a", state.MaxNameLen)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a/b", "../x", "/etc", "-rf", "a-", "A", "a.b", "a b", "a\nb", "a\x00", "é", "\x1b[2J", strings.Repeat("a", state.MaxNameLen+1),
	} {
		if err := CheckName(name); !errors.Is(err, ErrName) || KindOf(err) != KindSandbox || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestANamedSandboxIsThereOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const makers = 8
	errs := make([]error, makers)
	var work sync.WaitGroup
	for i := range makers {
		work.Go(func() { errs[i] = aNamed(t, h, "web") })
	}
	work.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, ErrExists):
			t.Errorf("%v, want ErrExists", err)
		}
	}
	all, err := h.List()
	if made != 1 || err != nil || len(all) != 1 || all[0].Name != "web" || all[0].Running {
		t.Errorf("%d made; %+v, %v", made, all, err)
	}
	if entries, err := os.ReadDir(filepath.Join(h.Dir(), state.NamedDir)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want nothing of those that came second", entries, err)
	}
	if err := h.Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), "web"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("removing it again: %v", err)
	}
}

func TestI12_MissingSandboxesAreNamed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	inspect := func(name string) error { _, err := h.Inspect(name); return err }
	connect := func(name string) error { _, err := h.Connect(t.Context(), name); return err }
	stop := func(name string) error { return h.Stop(t.Context(), name) }
	for what, try := range map[string]struct {
		do   func(string) error
		name string
		want error
	}{
		"inspect": {inspect, "nosuch", ErrNoSandbox}, "connect": {connect, "nosuch", ErrNoSandbox}, "stop": {stop, "nosuch", ErrNoSandbox},
		"inspect a path": {inspect, "../web", ErrName}, "connect to a path": {connect, "../web", ErrName}, "stop a path": {stop, "../web", ErrName},
		"connect to one that is stopped": {connect, "web", ErrNotRunning}, "stop it": {stop, "web", ErrNotRunning},
	} {
		if err := try.do(try.name); !errors.Is(err, try.want) || KindOf(err) != KindSandbox {
			t.Errorf("%s: %v, want %v", what, err, try.want)
		}
	}
}

func TestI12_DamagedStateCanBeRemoved(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, damage := range []string{"", "{", `{"version":1,"name":"other"}`, `{"version":99,"name":"web"}`, `{"version":1,"name":"web","no_such_key":1}`, "\x00\x01"} {
		if err := aNamed(t, h, "web"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(namedPath(h, "web", state.StoredFile), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := h.Inspect("web")
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "sandbox.json") || !strings.Contains(err.Error(), "msb rm web") {
			t.Errorf("%q: %v; want the file and the remedy", damage, err)
		}
		if all, err := h.List(); err != nil || len(all) != 1 || all[0].Problem == "" {
			t.Errorf("%q: listed as %+v, %v", damage, all, err)
		}
		if err := h.Remove(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestI13_LeftoversOfKilledCommandsAreSwept: a socket nobody listens on, a sandbox half made, half removed.
func TestI13_LeftoversOfKilledCommandsAreSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	l, err := state.ListenControl(namedPath(h, "web"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{VMM: state.ProcessID{PID: 1 << 30, Start: "1"}})); err != nil {
		t.Fatal(err)
	}
	half := state.HiddenPath(h.dir)
	if err := errors.Join(os.Mkdir(half, 0o700), state.WriteJSON(half, state.StoredFile, nil)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * newRunGrace)
	if err := os.Chtimes(half, old, old); err != nil {
		t.Fatal(err)
	}
	young := state.HiddenPath(h.dir) // which another command is about to lock
	must(t, os.Mkdir(young, 0o700))
	if _, err := OpenHome(h.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a sandbox is still there: %v", err)
	}
	if !there(t, young) {
		t.Error("a sandbox that is being made is gone")
	}
	if s, err := h.Inspect("web"); err != nil || s.Running {
		t.Errorf("%+v, %v; nobody listens", s, err)
	}
	if err := h.Remove(t.Context(), "web"); err != nil {
		t.Error(err)
	}
}

// TestControlSocketsWorkAtAnyDepth: a socket's address takes 107 bytes.
func TestControlSocketsWorkAtAnyDepth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 4 {
		dir = filepath.Join(dir, strings.Repeat("d", 60))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := state.ListenControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := state.DialControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// TestI13_ALockedSandboxIsNotTouched: whoever holds the lock is a supervisor that lives.
func TestI13_ALockedSandboxIsNotTouched(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	run, err := lockNamed(h, "web")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.lock.Close() }()
	if _, err := lockNamed(h, "web"); !errors.Is(err, ErrRunning) {
		t.Errorf("locked twice: %v", err)
	}
	if err := h.Remove(t.Context(), "web"); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "msb stop web") {
		t.Errorf("removed: %v", err)
	}
	if _, err := h.Inspect("web"); err != nil {
		t.Error(err)
	}
}

// TestAStatusNamesItsDirectory as programs read it.
func TestAStatusNamesItsDirectory(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := h.Inspect("web")
	must(t, err)
	b, err := json.Marshal(st)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(b, &fields))
	if fields["directory"] != namedPath(h, "web") {
		t.Errorf("%s", b)
	}
}
