package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// EnvHome names the variable that moves msb's state from ~/.msb.
const EnvHome = "MSB_HOME"

const (
	imagesDir = "images"
	guestDir  = "guest"

	idBytes = 6 // 48 random bits: enough for ids that live on one machine at one time
)

// Home is msb's state directory.
type Home struct {
	dir    string
	answer time.Duration // how long a sandbox may take to answer; 0 is connectWait, or usageWait for figures
	gone   time.Duration // how long the VMM of a killed supervisor may take to end; 0 is vmmGoneWait
	made   time.Time     // of Only; zero is any

	listed  nameList
	settled time.Duration // 0 is indexSettled; tests shorten it
}

// OpenHome opens the state directory dir, or $MSB_HOME, or ~/.msb, creates what is missing (mode 0700) and removes what
// killed supervisors left. One that others may write, or that holds what msb did not make, is ErrHome.
func OpenHome(dir string) (*Home, error) {
	dir, err := homeDir(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir, os.MkdirAll); err != nil {
		return nil, err
	}
	if err := claim(dir); err != nil {
		return nil, err
	}
	h := &Home{dir: dir}
	for _, sub := range []string{imagesDir, state.KernelDir, guestDir, state.RunsDir, state.KeptDir, state.NamedDir, state.SnapshotsDir} {
		if err := makeDir(filepath.Join(dir, sub), mkdirReal); err != nil {
			return nil, err
		}
	}
	return h, errors.Join(sweepRuns(h), sweepNamed(h), sweepVolumes(h), sweepSnapshots(h), sweepCaches(h), sweepTrust(h))
}

// homeDir is the absolute path of the state directory.
func homeDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(EnvHome)
	}
	if dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no home directory (%w): set %s", err, EnvHome)
		}
		dir = filepath.Join(user, ".msb")
	}
	return filepath.Abs(dir)
}

// makeDir makes a directory that only the caller may use, unless it exists.
func makeDir(dir string, mkdir func(string, fs.FileMode) error) error {
	err := mkdir(dir, 0o700)
	if info, e := os.Stat(dir); errors.Is(err, unix.ENOTDIR) || e == nil && !info.IsDir() {
		return fmt.Errorf("%w: %s is a file, or lies below one; set %s to a directory", ErrHome, dir, EnvHome)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w; set %s to a directory that you may write", ErrHome, dir, err, EnvHome)
	}
	return checkOurs(dir, os.Geteuid())
}

// mkdirReal is os.MkdirAll for one directory. A link is refused, since msb must not clean up what lies behind it.
func mkdirReal(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, mode); !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		err = errors.New("it is a link, and msb follows none here")
	}
	return err
}

// Only returns h for the one sandbox that was made at that moment (Status.Created). What is done by its name fails with
// ErrNoSandbox once another has the name.
func (h *Home) Only(created time.Time) *Home {
	only := *h
	only.made = created
	return &only
}

// Dir is the directory's absolute path.
func (h *Home) Dir() string { return h.dir }

// Images is where the image cache lives.
func (h *Home) Images() string { return filepath.Join(h.dir, imagesDir) }

// Kernel is where the guest kernel taken from libkrunfw is cached.
func (h *Home) Kernel() string { return filepath.Join(h.dir, state.KernelDir) }

// Guest is where the agent's root disk is cached.
func (h *Home) Guest() string { return filepath.Join(h.dir, guestDir) }
