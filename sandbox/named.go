package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// DefaultDisk is the size of a named sandbox's writable disk, in bytes. The file is sparse.
const DefaultDisk = 10 << 30

// StartOptions are what the start of an existing sandbox needs besides its state. The zero value is fine.
type StartOptions struct {
	// Home, Program, Progress and Notice are as in Config.
	Home, Program string
	Progress      image.Progress
	Notice        func(string)
	// Trust is as in Config, and stays with the sandbox.
	Trust bool
	// Created, if not zero, is Status.Created: ErrNoSandbox once another sandbox has the name.
	Created time.Time

	attached bool // Config.Attached
	review   bool // Home.Review
}

// Create makes the sandbox that cfg describes under cfg.Name, and does not start it. It has a disk of its own, which
// stays until Remove. ErrExists when there is one of that name.
func Create(ctx context.Context, cfg Config) error {
	_, lock, err := create(ctx, &cfg)
	if err != nil {
		return Fail(err)
	}
	return Fail(lock.Close())
}

// startNew makes a sandbox and starts it.
func startNew(ctx context.Context, cfg *Config) (*Sandbox, error) {
	home, lock, err := create(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := startNamed(ctx, home, cfg.Name, StartOptions{Program: cfg.Program, Progress: cfg.Progress, Notice: cfg.Notice, attached: cfg.Attached})
	if err != nil {
		return nil, errors.Join(err, removeMade(context.WithoutCancel(ctx), home, cfg.Name, lock), lock.Close())
	}
	s.made = lock
	return s, nil
}

// makeNamed also returns the lock file of the new sandbox, not locked.
func create(ctx context.Context, cfg *Config) (home *Home, lock *os.File, err error) {
	if err := CheckName(cfg.Name); err != nil {
		return nil, nil, err
	}
	if cfg.Learn != "" || cfg.Keep {
		return nil, nil, fmt.Errorf("%w: a sandbox with a name keeps its files and learns nothing; leave Keep and Learn out", ErrConfig)
	}
	if cfg.Disk == 0 {
		cfg.Disk = DefaultDisk
	}
	if err := errors.Join(cfg.fill(), absolute(&cfg.PolicyFile, &cfg.Audit, &cfg.Pcap)); err != nil {
		return nil, nil, err
	}
	if home, err = OpenHome(cfg.Home); err != nil {
		return nil, nil, err
	}
	if _, err := os.Lstat(namedPath(home, cfg.Name)); err == nil {
		return nil, nil, exists(cfg.Name)
	}
	if cfg.Directories, err = cfg.realDirectories(home); err != nil {
		return nil, nil, err
	}
	admitted, err := home.Trust().Admit(cfg.Policy, AdmitOptions{Floor: cfg.Floor, Trust: cfg.Trust})
	if err != nil {
		return nil, nil, err
	}
	img, err := resolve(ctx, home, cfg, admitted)
	if err == nil {
		err = cfg.makeVolumes(home)
	}
	if err != nil {
		return nil, nil, err
	}
	lock, err = makeNamed(home, newStored(cfg.Name, cfg, img, admitted))
	return home, lock, err
}

func exists(name string) error {
	return fmt.Errorf("%w: %s; `msb start %s` starts it, `msb exec %s -- COMMAND` uses it while it runs, `msb rm %s` removes it", ErrExists, name, name, name, name)
}

// absolute makes paths independent of a later command's working directory.
func absolute(paths ...*string) error {
	for _, p := range paths {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	return nil
}

// makeNamed makes a sandbox with an empty disk.
func makeNamed(h *Home, st *state.Stored) (lock *os.File, err error) {
	return makeWithDisk(h, st, st.Image, func(dir string) error {
		return image.CreateUpper(filepath.Join(dir, state.UpperDisk), st.Disk)
	})
}

// makeWithDisk makes the directory under a hidden name and renames it, so that a visible one is complete. It is locked
// until then, however long disk takes, so that no sweep removes it. from is the sandbox's origin, for its audit log.
func makeWithDisk(h *Home, st *state.Stored, from string, disk func(dir string) error) (lock *os.File, err error) {
	temp := state.HiddenPath(h.dir)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	lock, err = state.LockDir(temp, os.O_CREATE)
	if err == nil {
		err = state.WriteJSON(temp, state.StoredFile, st)
	}
	if err == nil {
		err = disk(temp)
	}
	if err == nil {
		if e := logEvent(st, temp, audit.SandboxCreate, from); st.Audit == "" { // starts check whether other files can be written to
			err = e
		}
	}
	if err == nil {
		err = os.Rename(temp, namedPath(h, st.Name))
		if errors.Is(err, fs.ErrExist) { // a directory that holds something is never replaced
			err = exists(st.Name)
		}
	}
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	}
	if err != nil {
		err = errors.Join(err, state.RemoveOwn(temp, state.NamedForm))
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		return nil, err
	}
	return lock, nil
}

// StartNamed starts the sandbox of that name, which runs until Stop, even if this process ends after StartNamed has
// returned. ErrRunning if it runs already.
func StartNamed(ctx context.Context, name string, o StartOptions) (*Sandbox, error) {
	home, err := OpenHome(o.Home)
	if err != nil {
		return nil, Fail(err)
	}
	s, err := startNamed(ctx, home, name, o)
	return s, Fail(err)
}

func startNamed(ctx context.Context, home *Home, name string, o StartOptions) (*Sandbox, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	run, err := lockSettled(ctx, home.Only(o.Created), name)
	if err != nil {
		return nil, err
	}
	cfg, img, admitted, err := prepareStart(ctx, home, run, o)
	if err != nil {
		return nil, errors.Join(err, run.lock.Close())
	}
	return bringUp(ctx, home, run, img, cfg, admitted)
}

// prepareStart determines what to start, and removes what an earlier run left. The caller holds the lock, so that no other
// sandbox gets the name meanwhile.
func prepareStart(ctx context.Context, h *Home, run *runDir, o StartOptions) (*Config, *image.Image, *Admission, error) {
	cfg, img, admitted, err := prepareRun(ctx, h, run, o)
	if err == nil {
		err = clearRun(h, run.dir)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return cfg, img, admitted, state.CheckWritten(run.dir)
}

// replan is supervisor.Replan.
func replan(ctx context.Context, old *state.Plan) (*state.Plan, error) {
	home, err := OpenHome(old.Home)
	if err != nil {
		return nil, err
	}
	run := &runDir{id: old.Name, dir: old.Dir}
	cfg, img, admitted, err := prepareRun(ctx, home, run, StartOptions{})
	if err != nil {
		return nil, err
	}
	agent, err := agentDisk(home, "")
	if err != nil {
		return nil, err
	}
	s := &Sandbox{name: old.Name, image: img, home: home, run: run}
	return s.plan(cfg, admitted, agent)
}

// prepareRun says what a sandbox with a name is run from.
func prepareRun(ctx context.Context, h *Home, run *runDir, o StartOptions) (*Config, *image.Image, *Admission, error) {
	st, err := loadStored(h, run.id)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg, err := configOf(st)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Name, cfg.Program, cfg.Progress, cfg.Notice, cfg.Trust, cfg.Attached = run.id, o.Program, o.Progress, o.Notice, o.Trust, o.attached
	if o.review {
		cfg.forReview()
	}
	if err := cfg.fill(); err != nil {
		return nil, nil, nil, err
	}
	if cfg.Directories, err = cfg.realDirectories(h); err != nil {
		return nil, nil, nil, err
	}
	admitted, err := h.Trust().Admit(cfg.Policy, AdmitOptions{Floor: cfg.Floor, Trust: cfg.Trust, Kept: st.Grants})
	if err != nil {
		return nil, nil, nil, err
	}
	was := *st
	if len(admitted.Grants.Beyond(st.Grants)) > 0 {
		st.Grants = needed(admitted.Grants, st.Grants)
	}
	if cfg.HideCredentials && len(cfg.Directories) > 0 {
		cfg.searchDirectories(st.Credentials, maxLooked)
		st.Credentials = cfg.credentials
	}
	if !reflect.DeepEqual(&was, st) {
		if err := state.WriteJSON(run.dir, state.StoredFile, st); err != nil {
			return nil, nil, nil, err
		}
	}
	img, err := imageOf(ctx, h, st, &cfg, admitted)
	if err != nil {
		return nil, nil, nil, err
	}
	return &cfg, img, admitted, nil
}

// imageOf finds the image that the sandbox was made from, since its disk fits no other.
func imageOf(ctx context.Context, h *Home, st *state.Stored, cfg *Config, admitted *Admission) (*image.Image, error) {
	store, err := Store(h)
	if err != nil {
		return nil, err
	}
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Digest == st.ImageDigest {
			return &all[i], nil
		}
	}
	img, err := resolve(ctx, h, cfg, admitted)
	if err != nil {
		return nil, fmt.Errorf("the image of sandbox %s: %w", st.Name, err)
	}
	if img.Digest == st.ImageDigest {
		return img, nil
	}
	return nil, fmt.Errorf("%w: %s is another image now (%s) than the one that sandbox %s was made from (%s), which is no longer there; make the sandbox again",
		image.ErrNotCached, st.Image, img.Digest, st.Name, st.ImageDigest)
}

// NeededImages are the digests of the images under the disks of named sandboxes and of snapshots.
func (h *Home) NeededImages() ([]string, error) {
	all, err := h.List()
	if err != nil {
		return nil, err
	}
	digests := make([]string, 0, len(all))
	for i := range all {
		digests = append(digests, all[i].Digest)
	}
	ofSnapshots, err := h.Snapshots().images()
	return append(digests, ofSnapshots...), err
}

// lockSettled is lockNamed after a kill: a supervisor's last threads hold its lock a little longer than its socket answers.
func lockSettled(ctx context.Context, h *Home, name string) (*runDir, error) {
	const tries, pause = 100, 20 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for n := 1; ; n++ {
		run, err := lockNamed(h, name)
		if !errors.Is(err, ErrRunning) || n == tries {
			return run, err
		}
		if conn, e := state.DialControl(namedPath(h, name)); e == nil {
			return nil, errors.Join(err, conn.Close())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// lockNamed takes a sandbox's lock, which its supervisor inherits. A lock file that somebody removed is made again.
func lockNamed(h *Home, name string) (*runDir, error) {
	if err := checkRealDir(h, name); err != nil {
		return nil, err
	}
	lock, err := state.LockDir(namedPath(h, name), os.O_CREATE)
	if err == nil && !isAt(lock, namedPath(h, name, state.LockFile)) { // opened before the sandbox was removed, locked after that
		err = errors.Join(unix.EWOULDBLOCK, lock.Close())
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("%w: %s", ErrRunning, name)
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(name, err)
	case err != nil:
		return nil, err
	}
	if !h.made.IsZero() { // with the lock held, nothing else comes under the name
		if _, err := loadStored(h, name); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	return &runDir{id: name, dir: namedPath(h, name), lock: lock}, nil
}

// isAt reports whether path still leads to the file.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}
