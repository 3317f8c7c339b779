package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// recorded makes a home with so many sandboxes that are stopped, whose directories were changed an hour ago.
func recorded(tb testing.TB, n int) *Home {
	tb.Helper()
	home, err := OpenHome(filepath.Join(tb.TempDir(), "home"))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		dir := namedPath(home, fmt.Sprintf("n%05d", i))
		st := &state.Stored{Version: state.StoredVersion, Created: time.Unix(int64(i), 0).UTC(), Labels: map[string]string{"n": fmt.Sprint(i)}}
		st.Name, st.Image, st.CPUs, st.Memory, st.Disk = filepath.Base(dir), "builtin", 1, 512<<20, 1<<30
		if err := os.Mkdir(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := state.WriteJSON(dir, state.StoredFile, st); err != nil {
			tb.Fatal(err)
		}
	}
	return home
}

// TestIndexedListsEqualFreshOnes changes sandboxes in each way that there is, and compares a list that the index helps
// with one of a home that has none.
func TestIndexedListsEqualFreshOnes(t *testing.T) {
	t.Parallel()
	home := recorded(t, indexFrom+indexAgain)
	file := filepath.Join(home.dir, state.IndexFile)
	same := func(what string) {
		t.Helper()
		got, err := home.List()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := os.Rename(file, file+"-kept"); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		want, err := home.List()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := os.Rename(file+"-kept", file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d sandboxes, want %d", what, len(got), len(want))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%s: got %+v, want %+v", what, got[i], want[i])
			}
		}
	}
	jobs := filepath.Join(namedPath(home, "n00006"), state.JobsDir)
	if err := os.Mkdir(jobs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&state.StoredJob{JobStatus: state.JobStatus{Name: MainJob, Restarts: 2}}).Create(jobs); err != nil {
		t.Fatal(err)
	}
	settle(t, home)
	same("first")
	if _, err := home.List(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("there is no index: %v", err)
	}
	same("with the index")
	entries, err := os.ReadDir(filepath.Join(home.dir, state.NamedDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	l, all := newLister(home, names), make([]Status, len(names))
	l.recall(names, all)
	for i, name := range names {
		if all[i].Name != name {
			t.Errorf("%s is not in the index", name)
		}
	}
	l.close()
	rewrite := func(name string, change func(*state.Stored)) {
		t.Helper()
		st, err := state.ReadStored(namedPath(home, name), name)
		if err == nil {
			change(st)
			err = state.WriteJSON(namedPath(home, name), state.StoredFile, st)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rewrite("n00001", func(st *state.Stored) { st.Label = "new" })
	same("another label")
	if err := state.WriteJSON(namedPath(home, "n00002"), state.EndFile, End{Kind: KindGuestPanic, Message: "it broke"}); err != nil {
		t.Fatal(err)
	}
	same("another end")
	if err := os.RemoveAll(namedPath(home, "n00003")); err != nil {
		t.Fatal(err)
	}
	same("one removed")
	if err := os.Rename(namedPath(home, "n00004"), namedPath(home, "n00003")); err != nil {
		t.Fatal(err)
	}
	same("one in another's place")
	if got, err := home.Inspect("n00006"); err != nil || got.RestartCount != 2 {
		t.Errorf("its command was restarted twice: %+v, %v", got, err)
	}
	if err := state.RemoveJob(jobs, MainJob); err != nil {
		t.Fatal(err)
	}
	same("a job removed")
	control, err := state.ListenControl(namedPath(home, "n00005"))
	if err != nil {
		t.Fatal(err)
	}
	same("one that runs")
	if got, err := home.Inspect("n00005"); err != nil || !got.Running {
		t.Errorf("it does not run: %+v, %v", got, err)
	}
	control.Close()
	same("one that was killed")
	if err := os.WriteFile(file, []byte("no index"), 0o600); err != nil {
		t.Fatal(err)
	}
	same("a damaged index")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), file); err != nil {
		t.Fatal(err)
	}
	same("a link in its place")
}

// settle makes a home's sandboxes as if they had been as they are for long: changes of a moment ago are not kept.
func settle(tb testing.TB, home *Home) {
	tb.Helper()
	home.settled = -time.Hour
}

// TestFreshSandboxesAreNotKept: what a directory was a moment ago may change again without another time.
func TestFreshSandboxesAreNotKept(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	at := func(d time.Duration) stamp {
		s := now.Add(-d)
		return stamp{Modified: s.UnixNano(), Changed: s.UnixNano()}
	}
	for age, want := range map[time.Duration]bool{-time.Second: false, 0: false, time.Second: false, indexSettled: false, indexSettled + 1: true, time.Hour: true} {
		if at(age).settled(now, indexSettled) != want {
			t.Errorf("changed %s ago: settled %t", age, !want)
		}
	}
	old, young := at(time.Hour), at(0)
	old.Changed = young.Changed
	if old.settled(now, indexSettled) {
		t.Error("the time of its change is not looked at")
	}
}

func BenchmarkList(b *testing.B) {
	home := recorded(b, 10_000)
	settle(b, home)
	if _, err := home.List(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if all, err := home.List(); err != nil || len(all) != 10_000 {
			b.Fatal(len(all), err)
		}
	}
}

// TestUnsettledSandboxesAreNotKept in the index: neither one whose directory, or that of whose jobs, has just changed, nor
// one whose files a supervisor may still write.
func TestUnsettledSandboxesAreNotKept(t *testing.T) {
	t.Parallel()
	home := recorded(t, indexFrom)
	home.settled = time.Hour
	hoursAgo := time.Now().Add(-10 * time.Hour).UnixNano()
	for i, c := range []struct {
		what string
		at   stamp
		make func(dir string) error
		want bool
	}{
		{"unchanged for long", stamp{1, 2, hoursAgo, hoursAgo}, nil, true},
		{"modified just now", stamp{1, 2, time.Now().UnixNano(), hoursAgo}, nil, false},
		{"changed just now", stamp{1, 2, hoursAgo, time.Now().UnixNano()}, nil, false},
		{"jobs just now", stamp{1, 2, hoursAgo, hoursAgo}, func(dir string) error { return os.Mkdir(filepath.Join(dir, state.JobsDir), 0o700) }, false},
		{"socket left", stamp{1, 2, hoursAgo, hoursAgo}, func(dir string) error { return os.WriteFile(filepath.Join(dir, state.ControlSock), nil, 0o600) }, false},
	} {
		name := fmt.Sprintf("n%05d", i)
		if c.make != nil {
			if err := c.make(namedPath(home, name)); err != nil {
				t.Fatal(err)
			}
		}
		l := newLister(home, make([]string, indexFrom))
		l.at[i] = c.at
		if _, err := l.inspect(i, name); err != nil {
			t.Fatal(err)
		}
		if kept := l.entries[i] != ""; kept != c.want {
			t.Errorf("%s: kept %t, want %t", c.what, kept, c.want)
		}
		l.close()
	}
}

// TestListedNamesAreThoseThatAreThere: the names that OpenHome read are used only while nothing has come, gone or been
// renamed.
func TestListedNamesAreThoseThatAreThere(t *testing.T) {
	t.Parallel()
	home := recorded(t, 3)
	dir := filepath.Join(home.dir, state.NamedDir)
	home.settled = time.Hour
	if err := sweepNamed(home); err != nil || home.listed.at != (stamp{}) {
		t.Fatalf("%v; the names of a directory that has just changed are kept: %+v", err, home.listed)
	}
	old := time.Unix(1, 0)
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"nothing", func() error { return nil }},
		{"a new one", func() error { return os.Mkdir(filepath.Join(dir, "another"), 0o700) }},
		{"one gone", func() error { return os.Remove(filepath.Join(dir, "another")) }},
		{"a rename", func() error { return os.Rename(filepath.Join(dir, "n00001"), filepath.Join(dir, "n00009")) }},
		{"a file", func() error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600) }},
	} {
		settle(t, home)
		if err := os.Chtimes(dir, old, old); err != nil { // two changes in one tick of the clock have the same time
			t.Fatal(err)
		}
		if err := sweepNamed(home); err != nil || home.listed.at == (stamp{}) {
			t.Fatalf("%s: %v; no names are kept", c.what, err)
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		got, err := sandboxNames(home)
		if err != nil {
			t.Fatal(err)
		}
		fresh := *home
		fresh.listed = nameList{}
		if want, err := sandboxNames(&fresh); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: the names are %v, want %v (%v)", c.what, got, want, err)
		}
	}
}

// TestIndexesAreOfOneHome: a home that was moved shows its sandboxes where they are, and its index is the user's alone.
func TestIndexesAreOfOneHome(t *testing.T) {
	t.Parallel()
	home := recorded(t, indexFrom)
	settle(t, home)
	if _, err := home.List(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(home.dir, state.IndexFile)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the index: %v, %v", info, err)
	}
	moved := &Home{dir: home.dir + ".moved"}
	if err := os.Rename(home.dir, moved.dir); err != nil {
		t.Fatal(err)
	}
	all, err := moved.List()
	if err != nil || len(all) != indexFrom {
		t.Fatalf("%d sandboxes, %v", len(all), err)
	}
	for _, s := range all {
		if s.Dir != namedPath(moved, s.Name) {
			t.Fatalf("%s is said to be at %s", s.Name, s.Dir)
		}
	}
}

// TestI14_WhatIsNoIndexIsNotRead: a pipe in its place would hold each list up for ever, and a file without bounds would fill
// the memory.
func TestI14_WhatIsNoIndexIsNotRead(t *testing.T) {
	t.Parallel()
	home := recorded(t, indexFrom)
	file := filepath.Join(home.dir, state.IndexFile)
	for what, put := range map[string]maker{
		"a pipe": fifo, "a directory": dir(nil),
		"a large file": func(t *testing.T, path string) {
			t.Helper()
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, os.Truncate(path, maxIndex+1))
		},
	} {
		put(t, file)
		if text := newLister(home, make([]string, indexFrom)).readKept(); text != "" {
			t.Errorf("%s is read", what)
		}
		must(t, os.Remove(file))
	}
}
