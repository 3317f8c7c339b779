package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
)

// The directories and files under $MSB_HOME. Everything in runs belongs to one live supervisor, which
// holds lockFile; a directory whose lock is free is left from a killed one and swept by the next command.
const (
	KernelDir = "kernel"
	RunsDir   = "run"
	KeptDir   = "kept"
	NamedDir  = "sandboxes"
	// IndexFile is a cache of what List reads of many sandboxes.
	IndexFile = "sandboxes.index"

	SnapshotsDir = "snapshots"

	LockFile  = "lock"
	UpperDisk = "upper.ext4"
	// TransferDisk has a name only while a machine starts.
	TransferDisk = "transfer.disk"
	// NewUpperDisk is one that is about to take the place of UpperDisk.
	NewUpperDisk = UpperDisk + ".new"

	ConsoleLog    = "console.log"
	SupervisorLog = "supervisor.log"
	AuditLog      = "audit.jsonl"
	PodResolvConf = "resolv.conf" // as it was when the pod's machine was started
)

// The files of a named sandbox. Those of a run are there while it runs, and are swept after a kill.
const (
	StoredFile  = "sandbox.json"
	CaFile      = "ca.pem"
	EndFile     = "end.json"     // how its last run ended
	InfoFile    = "run.json"     // what the run says of itself
	ControlSock = "control.sock" // of the run
	PeerSock    = "peer.sock"    // of the run, for other sandboxes
	OriginFile  = "origin.json"  // the snapshot that its disk was last at
	// CallsFile has what agents did with it, in lines; with OlderCalls behind its name, the file before.
	CallsFile  = "calls.jsonl"
	OlderCalls = ".1"
	// ChildrenFile counts the children that were made of it, ChildrenLock is held meanwhile.
	ChildrenFile = "children.json"
	ChildrenLock = "children.lock"

	// The SSH server's key, that of its client, and the server's as the client knows it.
	SSHHostKey    = "ssh_host_key"
	SSHClientKey  = "ssh_client_key"
	SSHKnownHosts = "ssh_known_hosts"
)

var runFile = lazyregexp.New(`^(lock|upper\.ext4(\.new)?|transfer\.disk|console\.log(\.1)?|supervisor\.log|audit\.jsonl(\.[0-9]+)?|cow-[0-9a-f]{16}\.base|layer[0-9]+|resolv\.conf|memory-[0-9a-f]{16})$`)

// RunForm is that of a sandbox's directory in run and kept.
var RunForm = withJobs(owned.Files(runFile.MatchString))

// RemoveIn deletes a sandbox's directory, its lock last: as long as anything is left, a sweep either finds the lock taken
// or takes it.
func RemoveIn(parent, dir *os.File, name string, form owned.Form) error {
	err := owned.Remove(parent, dir, name, form, LockFile)
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil // somebody still writes into it: a later sweep removes it
	}
	return err
}

// RemoveOwn is RemoveIn for the holder of the lock. A missing directory is no
// error.
func RemoveOwn(path string, form owned.Form) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return UnlessGone(err)
	}
	defer func() { _ = parent.Close() }()
	dir, err := owned.Open(parent, filepath.Base(path))
	if err != nil {
		return UnlessGone(err)
	}
	defer func() { _ = dir.Close() }()
	if err := RemoveIn(parent, dir, filepath.Base(path), form); err != nil {
		return fmt.Errorf("%s stays: %w", path, err)
	}
	return nil
}

func UnlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// LockDir is lockAt for a path.
func LockDir(path string, flags int) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return LockAt(dir, flags)
}

// LockAt takes dir's lock without waiting; unix.EWOULDBLOCK tells that someone holds it. Without os.O_CREATE among flags,
// a directory that has no lock file is fs.ErrNotExist.
func LockAt(dir *os.File, flags int) (*os.File, error) { return lockAs(dir, flags, unix.LOCK_EX) }

// LockDisk takes the lock of a disk, which a machine holds that can write to it: the kernel frees it with the last process.
// While another has it for longer than limit, ErrRunning.
func LockDisk(path string, limit time.Duration) (*os.File, error) {
	disk, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); ; <-tick.C {
		err := unix.Flock(int(disk.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return disk, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(deadline) || errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: the machine of its last run still has its disk; end it", ErrRunning)
		}
		return nil, errors.Join(err, disk.Close())
	}
}

// CheckLock is fs.ErrNotExist if a lock that was just taken is no longer the file at path, because its last holder
// removed it.
func CheckLock(lock *os.File, path string) error {
	held, err := lock.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if err == nil && !os.SameFile(held, there) {
		err = &os.PathError{Op: "lock", Path: path, Err: fs.ErrNotExist}
	}
	return err
}

func lockAs(dir *os.File, flags, how int) (*os.File, error) {
	path := filepath.Join(dir.Name(), LockFile)
	fd, err := unix.Openat(int(dir.Fd()), LockFile, flags|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%w: %s is no file", owned.ErrForeign, path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
