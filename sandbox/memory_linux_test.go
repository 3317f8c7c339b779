//go:build !vmtest

package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// memoryTest is a sandbox with real supervisors, whose machines can be saved.
type memoryTest struct {
	t    *testing.T
	h    *Home
	root string
}

func newMemoryTest(t *testing.T) *memoryTest {
	t.Helper()
	m := &memoryTest{t, newHome(t), t.TempDir()}
	m.must("create", "")
	return m
}

func (m *memoryTest) do(verb, key string) (string, error) {
	m.t.Helper()
	return operation{Verb: verb, Home: m.h.Dir(), Root: m.root, Name: "a", Key: key, To: key}.do(m.t.Context(), m.h)
}

func (m *memoryTest) must(verb, key string) string {
	m.t.Helper()
	out, err := m.do(verb, key)
	if err != nil {
		m.t.Fatalf("%s %s: %v", verb, key, err)
	}
	return out
}

// saved starts the sandbox, has its guest keep the token in memory alone, saves it as that snapshot, and stops it.
func (m *memoryTest) saved(snapshot, token string) (boot string) {
	m.t.Helper()
	m.must("start", "")
	m.must("append", token)
	m.must("snapshotmemory", snapshot)
	boot = m.must("boot", "")
	m.must("stop", "")
	return boot
}

// memories are the files of memories in the sandbox's directory.
func (m *memoryTest) memories() []string {
	m.t.Helper()
	list, err := filepath.Glob(namedPath(m.h, "a", "memory-*"))
	must(m.t, err)
	return list
}

// TestSnapshotsOfMemoryGoOnOnce: what the guest had in memory alone is there again, and its boot is the same. The next
// start is a boot.
func TestSnapshotsOfMemoryGoOnOnce(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.must("start", "")
	m.must("append", "x")
	s, err := m.h.Snapshots().Create(t.Context(), "a", SnapshotOptions{Memory: true})
	must(t, err)
	if s.Name != "a-1" || s.Memory == 0 || !s.Running {
		t.Errorf("%+v", s)
	}
	boot := m.must("boot", "")
	m.must("append", "y") // it goes on
	m.must("stop", "")
	for range 2 { // a snapshot can be restored again
		must(t, m.h.Snapshots().Restore(t.Context(), "a-1", ""))
		if st, err := m.h.Inspect("a"); err != nil || !st.Resumes {
			t.Errorf("%+v, %v: it doesn't tell of the memory", st, err)
		}
		m.must("start", "")
		if got := m.must("list", ""); got != "x" {
			t.Errorf("the guest has %q, want the token of the snapshot", got)
		}
		if got := m.must("boot", ""); got != boot {
			t.Errorf("it is another boot: %q, want %q", got, boot)
		}
		st, err := m.h.Inspect("a")
		if err != nil || st.Info == nil || !st.Info.Resumed || st.Resumes {
			t.Errorf("%+v, %v", st, err)
		}
		if left := m.memories(); len(left) > 0 {
			t.Errorf("%q stay, and could be used again", left)
		}
		m.must("append", "z")
		m.must("stop", "")
		if st, err := m.h.Inspect("a"); err != nil || st.Resumes {
			t.Errorf("%+v, %v: it tells of a memory that was used", st, err)
		}
		m.must("start", "")
		if got := m.must("boot", ""); got == boot {
			t.Error("the memory was used twice")
		}
		if got := strings.Fields(m.must("list", "")); !slices.Equal(got, []string{"x", "z"}) {
			t.Errorf("booted, the guest has %q", got)
		}
		m.must("stop", "")
	}
	must(t, m.h.Snapshots().RestoreDisk(t.Context(), "a-1", ""))
	m.must("start", "")
	if got := m.must("boot", ""); got == boot || m.must("list", "") != "" {
		t.Errorf("of the disk alone it is boot %q, with %q", got, m.must("list", ""))
	}
	m.must("stop", "")
	st, err := m.h.Inspect("a")
	must(t, err)
	log, err := os.ReadFile(st.Audit)
	if err != nil || strings.Count(string(log), `"`+string(audit.SandboxPause)+`"`) != 1 || strings.Count(string(log), `"`+string(audit.SandboxResume)+`"`) != 1 {
		t.Errorf("%v, the audit log doesn't tell that the guest stood still: %s", err, log)
	}
}

// TestI18_MemoryStaysWithItsSandbox: two sandboxes never go on from one memory, whatever is made of the snapshot.
func TestI18_MemoryStaysWithItsSandbox(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	boot := m.saved("s", "x")
	must(t, m.h.Snapshots().Clone(t.Context(), "s", "b", CloneOptions{}))
	must(t, m.h.Snapshots().Restore(t.Context(), "s", ""))
	must(t, m.h.Clone(t.Context(), "a", "c", CloneOptions{})) // of one with a memory beside its disk
	for _, name := range []string{"b", "c"} {
		if list, err := filepath.Glob(namedPath(m.h, name, "memory*")); err != nil || len(list) > 0 {
			t.Errorf("%s has %q, %v", name, list, err)
		}
		o := operation{Verb: "start", Home: m.h.Dir(), Name: name}
		_, err := o.do(t.Context(), m.h)
		must(t, err)
		o.Verb = "boot"
		if got, err := o.do(t.Context(), m.h); err != nil || got == boot {
			t.Errorf("%s goes on as a: %q, %v", name, got, err)
		}
		must(t, m.h.Stop(t.Context(), name))
		if err := m.h.Snapshots().Restore(t.Context(), "s", name); !errors.Is(err, ErrSnapshotOf) {
			t.Errorf("restored as %s: %v", name, err)
		}
	}
	// The file of the memory in another sandbox's directory, with the name that it takes there.
	disk, from := namedPath(m.h, "b", state.UpperDisk), m.memories()
	if len(from) != 1 {
		t.Fatalf("%q", from)
	}
	name, err := state.PairWithMemory(disk)
	must(t, err)
	must(t, os.Link(from[0], namedPath(m.h, "b", name)))
	_, err = operation{Verb: "start", Home: m.h.Dir(), Name: "b"}.do(t.Context(), m.h)
	if !isError(err, ErrNotResumed) || !strings.Contains(err.Error(), "another sandbox's") {
		t.Errorf("b starts from a's memory: %v", err)
	}
}

// TestI13_MemoryOfAnotherInstantIsNotUsed changes the disk after a restore in the ways there are: the guest boots then. The
// twin gives the memory the name that it has with the changed disk, and damages the guest.
func TestI13_MemoryOfAnotherInstantIsNotUsed(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	boot := m.saved("s", "x")
	m.must("start", "")
	m.must("append", "disk")
	m.must("stop", "")
	_, err := m.h.Snapshots().Create(t.Context(), "a", SnapshotOptions{Name: "disk"})
	must(t, err)
	kept := filepath.Join(m.h.Dir(), state.NamedDir, "a", "memory") // what a copy, or a kill in a bad moment, could bring back
	for way, change := range map[string]func(){
		"another snapshot": func() { must(t, m.h.Snapshots().Restore(t.Context(), "disk", "")) },
		"its disk alone":   func() { must(t, m.h.Snapshots().RestoreDisk(t.Context(), "s", "")) },
		"a reset":          func() { must(t, m.h.Reset(t.Context(), "a")) },
		"a write":          func() { writeToken(t, m.h, "written") },
		"a run":            func() { m.must("start", ""); m.must("append", "later"); m.must("stop", "") },
	} {
		must(t, m.h.Snapshots().Restore(t.Context(), "s", ""))
		list := m.memories()
		if len(list) != 1 {
			t.Fatalf("%s: %q", way, list)
		}
		must(t, os.Link(list[0], kept))
		change()
		if _, err := os.Lstat(list[0]); errors.Is(err, os.ErrNotExist) {
			must(t, os.Rename(kept, list[0])) // under the name that it had
		} else {
			must(t, os.Remove(kept))
		}
		m.must("start", "")
		if m.must("boot", "") == boot {
			t.Errorf("%s: the guest goes on from the memory", way)
		}
		m.must("stop", "")
		for _, path := range m.memories() {
			must(t, os.Remove(path))
		}
	}
	must(t, m.h.Snapshots().Restore(t.Context(), "s", ""))
	from := m.memories()[0]
	writeToken(t, m.h, "written")
	name, err := state.PairWithMemory(namedPath(m.h, "a", state.UpperDisk)) // the defence is off
	must(t, err)
	must(t, os.Rename(from, namedPath(m.h, "a", name)))
	if _, err := m.do("start", ""); err == nil || !isError(err, errAnotherInstant) {
		t.Errorf("a memory with a disk of another instant: %v", err)
	}
}

// TestI13_KilledRestoresLeaveOneInstant kills a restore at each of its steps, of a sandbox that has the memory of another
// snapshot beside its disk: what goes on then is the one or the other. Not parallel: it forks.
func TestI13_KilledRestoresLeaveOneInstant(t *testing.T) {
	m := newMemoryTest(t)
	dir, err := filepath.EvalSymlinks(m.h.Dir())
	must(t, err)
	f := &faults{home: filepath.Dir(dir)}
	boots := map[string]string{}
	for _, snapshot := range []string{"one", "two"} {
		m.must("reset", "")
		boots[snapshot] = m.saved(snapshot, snapshot)
	}
	kill := func(at int) (steps []string) {
		must(t, m.h.Snapshots().Restore(t.Context(), "one", ""))
		f.arm(killSelf, at)
		done, why := f.do(t, operation{Verb: "restore", Home: m.h.Dir(), Root: m.root, Name: "a", To: "two"})
		steps, hit, _ := f.disarm(t)
		if done == (hit != "") {
			t.Fatalf("killed at %q: done %v, %s", hit, done, why)
		}
		m.must("start", "")
		token := strings.TrimSpace(m.must("list", ""))
		if boots[token] == "" || m.must("boot", "") != boots[token] || done && token != "two" {
			t.Errorf("killed at %q: the guest has %q, and is boot %q of %q", hit, token, m.must("boot", ""), boots)
		}
		m.must("stop", "")
		if left := m.memories(); len(left) > 1 { // one may be of the restore that was killed
			t.Errorf("killed at %q, %q stay", hit, left)
		}
		return steps
	}
	all := len(kill(0))
	every := max(1, all/12)
	if os.Getenv(faultsEnv) != "" {
		every = 1
	}
	for at := 1; at <= all; at += every {
		kill(at)
	}
	// The steps that count, by their place from the end: the disk's rename, and what comes before and behind.
	for at := max(1, all-8); at <= all; at++ {
		kill(at)
	}
	t.Logf("%d steps", all)
}

// TestMemoryIsKeptUntilItIsUsed: a start that can't use the memory says what differs, and what to do; it stays.
func TestMemoryIsKeptUntilItIsUsed(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	boot := m.saved("s", "x")
	must(t, m.h.Snapshots().Restore(t.Context(), "s", ""))
	must(t, m.h.Update(t.Context(), "a", Changes{Memory: new(int64(256 << 20))}))
	_, err := m.do("start", "")
	for _, word := range []string{ErrNotResumed.Error(), "the memory was 512 MiB, and is 256 MiB here", "msb snapshot restore --no-memory s a"} {
		if err == nil || !strings.Contains(err.Error(), word) || KindOf(err) != KindSandbox {
			t.Errorf("with less memory: %v, want %q", err, word)
		}
	}
	must(t, m.h.Update(t.Context(), "a", Changes{Memory: new(int64(512 << 20))}))
	st, err := loadStored(m.h, "a")
	must(t, err)
	st.Hostname = "other"
	must(t, state.WriteJSON(namedPath(m.h, "a"), state.StoredFile, st))
	if _, err := m.do("start", ""); !isError(err, ErrNotResumed) || !strings.Contains(err.Error(), "the host name was a, and is other here") {
		t.Errorf("with another host name: %v", err)
	}
	st.Hostname = "a"
	st.Directories = []Directory{{Host: t.TempDir(), Guest: "/shared"}}
	must(t, state.WriteJSON(namedPath(m.h, "a"), state.StoredFile, st))
	if _, err := m.do("start", ""); !isError(err, ErrNotResumed) || !strings.Contains(err.Error(), "directories of this machine") {
		t.Errorf("with a directory: %v", err)
	}
	st.Directories = nil
	must(t, state.WriteJSON(namedPath(m.h, "a"), state.StoredFile, st))
	m.must("start", "")
	if got := m.must("boot", ""); got != boot {
		t.Errorf("it is boot %q, want %q", got, boot)
	}
	m.must("stop", "")
}

// TestDamagedMemoryIsNotUsed damages the file at each end and in the middle.
func TestDamagedMemoryIsNotUsed(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.saved("s", "x")
	must(t, m.h.Snapshots().Restore(t.Context(), "s", ""))
	path := m.memories()[0]
	whole, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Remove(path)) // the other name of the snapshot's
	for what, damaged := range map[string][]byte{
		"cut":              whole[:len(whole)-1],
		"a byte of it":     slices.Concat(whole[:len(whole)-40], []byte{whole[len(whole)-40] ^ 1}, whole[len(whole)-39:]),
		"its digest":       slices.Concat(whole[:len(whole)-1], []byte{whole[len(whole)-1] ^ 1}),
		"its head":         slices.Concat([]byte("x"), whole[1:]),
		"longer":           append(slices.Clone(whole), 0),
		"empty":            nil,
		"of a later msb":   []byte(strings.Replace(string(whole), `"version":1`, `"version":9`, 1)),
		"head without end": []byte(strings.Repeat("x", 1<<20)),
	} {
		must(t, os.WriteFile(path, damaged, 0o600))
		_, err := m.do("start", "")
		if !isError(err, ErrMemoryDamaged) || !strings.Contains(err.Error(), "--no-memory s a") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.WriteFile(path, whole, 0o600))
	m.must("start", "")
	m.must("stop", "")
}

// TestMemoryIsNotSavedOf says of which sandboxes.
func TestMemoryIsNotSavedOf(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	save := func() error {
		_, err := m.h.Snapshots().Create(t.Context(), "a", SnapshotOptions{Memory: true})
		return err
	}
	if err := save(); !errors.Is(err, ErrNotSaved) || KindOf(err) != KindSandbox || !strings.Contains(err.Error(), "a doesn't run") {
		t.Errorf("one that is stopped: %v", err)
	}
	m.must("start", "")
	must(t, m.h.Pause(t.Context(), "a"))
	if err := save(); !errors.Is(err, ErrPaused) {
		t.Errorf("one that is paused: %v", err)
	}
	must(t, m.h.Resume(t.Context(), "a"))
	must(t, save())
	m.must("stop", "")
	st, err := loadStored(m.h, "a")
	must(t, err)
	st.Caches = []string{"pip"}
	must(t, state.WriteJSON(namedPath(m.h, "a"), state.StoredFile, st))
	m.must("start", "")
	if err := save(); !errors.Is(err, ErrNotSaved) || !strings.Contains(err.Error(), "caches that other sandboxes share") {
		t.Errorf("one with caches: %v", err)
	}
	m.must("stop", "")
	if all, err := m.h.Snapshots().List(); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestI12_HeldGuestsGoOn: a guest that stands still for a snapshot goes on when its time is over, or its taker is gone. There
// is no snapshot then.
func TestI12_HeldGuestsGoOn(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.must("start", "")
	store, err := m.h.Snapshots().store()
	must(t, err)
	hold := func(limit time.Duration, still func(context.Context) error) error {
		work, err := store.Begin(t.Context())
		must(t, err)
		defer func() { must(t, work.Abort()) }()
		sb, err := m.h.Connect(t.Context(), "a")
		must(t, err)
		defer func() { must(t, sb.Close()) }()
		return sb.client.Save(t.Context(), work.Name(), limit, still)
	}
	const short = 200 * time.Millisecond
	if err := hold(short, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over its time: %v", err)
	}
	m.must("append", "x")
	if err := hold(time.Minute, func(context.Context) error { return io.ErrShortWrite }); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("given up: %v", err)
	}
	m.must("append", "y")
	if err := hold(time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Errorf("to the end: %v", err)
	}
	m.must("stop", "")
	if left, err := os.ReadDir(filepath.Join(m.h.Dir(), state.SnapshotsDir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v stay, %v", left, err)
	}
}
