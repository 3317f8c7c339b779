package state

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestI14_OwnFilesAreFiles: behind a link, a pipe or a socket in the place of msb's own file is somebody else's. The contrast is a
// file.
func TestI14_OwnFilesAreFiles(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(other, []byte("{}"), 0o600))
	for name, make := range map[string]func(path string) error{
		"a file": func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"a link": func(path string) error { return os.Symlink(other, path) },
		"a pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "it")
		must(t, make(path))
		good := name == "a file"
		if _, err := ReadOwn(path); (err == nil) != good {
			t.Errorf("%s: read: %v", name, err)
		}
		if err := CheckWritten(dir); (err == nil) != good || !good && !errors.Is(err, ErrState) {
			t.Errorf("%s: written: %v", name, err)
		}
		if disk, err := LockDisk(path, 0); (err == nil) != good && name != "a pipe" {
			t.Errorf("%s: locked: %v", name, err)
		} else if err == nil {
			_ = disk.Close()
		}
		if m, err := OpenMemory(path); err == nil || !good && errors.Is(err, fs.ErrNotExist) || name == "a link" && errors.Is(err, ErrMemoryDamaged) {
			t.Errorf("%s: a memory: %v, %v", name, m, err)
		}
		r := &Request{ID: "once2222", State: RequestApproved, Lifetime: ForOnce}
		once := OnceFile(dir, r.ID)
		must(t, os.Rename(path, once))
		if err := r.MarkUnused(dir); (err == nil) != good {
			t.Errorf("%s: a grant for once: %v", name, err)
		}
	}
	dir := t.TempDir()
	must(t, WriteJSON(dir, StoredFile, 1))
	if info, err := os.Stat(filepath.Join(dir, StoredFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what a sandbox is, others may read: %v, %v", info, err)
	}
}

// TestI14_SocketsAreNotFollowed: by a link the process of another socket would be taken for the supervisor, and signalled.
func TestI14_SocketsAreNotFollowed(t *testing.T) {
	t.Parallel()
	real, linked, file := t.TempDir(), t.TempDir(), t.TempDir()
	l, err := ListenControl(real)
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, os.Symlink(filepath.Join(real, ControlSock), filepath.Join(linked, ControlSock)))
	must(t, os.WriteFile(filepath.Join(file, ControlSock), nil, 0o600))
	for _, dir := range []string{linked, file} {
		if c, err := DialControl(dir); !errors.Is(err, errNoControl) {
			t.Errorf("%v, %v", c, err)
		}
	}
	// This program listens there, and its command line is no supervisor's.
	c, err := DialControl(real)
	must(t, err)
	if err := SignalPeer(c, 0); !errors.Is(err, ErrForeign) {
		t.Errorf("signalled: %v", err)
	}
	if wait, err := WatchPeer(c); !errors.Is(err, ErrForeign) {
		t.Errorf("watched: %t, %v", wait != nil, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is open: %v", err)
	}
}

// script starts a program whose command line is a supervisor's, and returns once it has made the file "ready".
func script(t *testing.T, arg, text string) (p ProcessID, dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, arg), []byte(text), 0o600))
	cmd := exec.Command("sh", arg)
	cmd.Dir = dir
	hold, err := cmd.StdinPipe() // which it reads: it waits until this end is closed
	must(t, err)
	must(t, cmd.Start())
	over := make(chan struct{})
	go func() { defer close(over); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = hold.Close(); _ = cmd.Process.Kill(); <-over })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			return Identify(cmd.Process.Pid), dir
		}
		if time.Now().After(end) {
			t.Fatal("it isn't ready")
		}
	}
}

// TestSupervisorsAreAskedBeforeTheyAreKilled: one that ends by itself does what it has to, one that doesn't is killed when its time is
// over, and none is when nobody waits any longer. Another program is left alone.
func TestSupervisorsAreAskedBeforeTheyAreKilled(t *testing.T) {
	t.Parallel()
	const deaf = "trap '' TERM; : > ready; while read x; do :; done"
	p, dir := script(t, Verb, "trap ': > ended; exit' TERM; : > ready; while :; do read x; done")
	if err := p.End(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("it wasn't asked: %v", err)
	}
	p, _ = script(t, Verb, deaf)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.End(gone, time.Minute); !errors.Is(err, context.Canceled) || p.over() {
		t.Errorf("nobody waits: %v, it is over: %t", err, p.over())
	}
	if err := p.End(t.Context(), 60*time.Millisecond); !errors.Is(err, ErrSupervisor) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it doesn't end: %v", err)
	}
	if !p.over() {
		t.Error("it is there still")
	}
	p, _ = script(t, "another", deaf)
	if err := p.End(t.Context(), time.Minute); !errors.Is(err, ErrForeign) || p.over() {
		t.Errorf("another program: %v, it is over: %t", err, p.over())
	}
}

// TestI13_HeldCommandsAreRunAsTheyWere: all options that can be stored come back.
func TestI13_HeldCommandsAreRunAsTheyWere(t *testing.T) {
	t.Parallel()
	o := agentclient.ExecOptions{
		Argv: []string{"run", "x"}, Env: []string{"A=1"}, Dir: "/srv", MakeDir: true, User: "app", Timeout: time.Minute,
		Rlimits: []agentclient.Rlimit{{}}, TTY: true, Size: agentclient.Size{Rows: 3, Cols: 4}, JobInput: true,
	}
	m := NewMainRun(&StoredJob{}, &o, Restarts{Count: 2})
	for v, i := reflect.ValueOf(*m), 2; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s isn't kept", v.Type().Field(i).Name)
		}
	}
	b, err := json.Marshal(m)
	must(t, err)
	var read MainRun
	must(t, json.Unmarshal(b, &read))
	if got := read.Options(); !reflect.DeepEqual(got, o) || read.Restarts.Count != 2 {
		t.Errorf("%+v, want %+v", got, o)
	}
}

// TestRecordsAreOfWhatTheyAreTakenFor: a job's, a volume's and those of caches, copied or renamed by hand or of a later msb.
func TestRecordsAreOfWhatTheyAreTakenFor(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	must(t, (&StoredJob{JobStatus: JobStatus{Name: "a", State: JobRunning}, Supervisor: ProcessID{os.Getpid(), "1"}}).Create(home))
	must(t, os.Link(JobPath(home, "a"), JobPath(home, "b")))
	j, err := ReadJob(home, "a")
	must(t, err)
	if st := j.Current(); st.State != JobLost || st.Reason == "" {
		t.Errorf("whose supervisor has gone: %+v", st)
	}
	j.Supervisor = Identify(os.Getpid())
	if st := j.Current(); st.State != JobRunning {
		t.Errorf("whose supervisor is there: %+v", st)
	}
	if j, err := ReadJob(home, "b"); !errors.Is(err, ErrState) {
		t.Errorf("another job's: %+v, %v", j, err)
	}
	for _, name := range []string{"data", "copy"} {
		must(t, os.MkdirAll(VolumePath(home, name), 0o700))
		must(t, WriteJSON(VolumePath(home, name), VolumeFile, StoredVolume{Version: VolumeVersion, Name: "data"}))
		if v, err := ReadVolume(home, name); (err == nil) != (name == "data") || err != nil && !errors.Is(err, ErrState) {
			t.Errorf("the volume %s: %+v, %v", name, v, err)
		}
	}
	for _, version := range []int{CacheVersion, CacheVersion + 1} {
		must(t, WriteJSON(home, CacheFile, StoredCaches{Version: version}))
		if c, err := ReadCaches(home); (err == nil) != (version == CacheVersion) || err != nil && !errors.Is(err, ErrState) {
			t.Errorf("caches of version %d: %+v, %v", version, c, err)
		}
	}
	for _, name := range []string{"g00000009", "g00000010", "work", "g1"} {
		must(t, os.MkdirAll(CachesPath(home, name), 0o700))
		must(t, os.WriteFile(CachesPath(home, name, LockFile), nil, 0o600))
	}
	if all, err := Generations(home); err != nil || !slices.Equal(all, []string{"g00000010", "g00000009"}) {
		t.Errorf("%v, %v", all, err)
	}
	dir, lock, err := AttachCaches(home)
	must(t, err)
	defer func() { _ = lock.Close() }()
	if filepath.Base(dir) != "g00000010" {
		t.Errorf("a machine gets %s", dir)
	}
}

// TestGuestsThatWriteToThisMachineAreAsked to write back what they hold, before their machine ends.
func TestGuestsThatWriteToThisMachineAreAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Plan)
		want   bool
	}{
		"nothing":              {func(*Plan) {}, false},
		"containers":           {func(p *Plan) { p.Containers = true }, true},
		"caches":               {func(p *Plan) { p.CacheWork = "/disk" }, true},
		"a volume":             {func(p *Plan) { p.Volumes = []Volume{{ReadOnly: true}, {}} }, true},
		"a read-only volume":   {func(p *Plan) { p.Volumes = []Volume{{ReadOnly: true}} }, false},
		"a directory":          {func(p *Plan) { p.Directories = []Directory{{Writable: true}} }, true},
		"a directory to read":  {func(p *Plan) { p.Directories = []Directory{{}} }, false},
		"a directory's copies": {func(p *Plan) { p.Directories = []Directory{{CopyOnWrite: true}} }, false},
	} {
		var p Plan
		c.change(&p)
		if p.Shares() != c.want {
			t.Errorf("%s: %t", name, p.Shares())
		}
	}
}
