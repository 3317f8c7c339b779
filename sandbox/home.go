package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// EnvHome names the variable that moves msb's state from ~/.msb.
const EnvHome = "MSB_HOME"

// The folders and files under $MSB_HOME. Everything in runs belongs to one live supervisor, which
// holds lockFile; a folder whose lock is free is left from a killed one and swept by the next command.
const (
	imagesDir = "images"
	kernelDir = "kernel"
	guestDir  = "guest"
	runsDir   = "run"
	keptDir   = "kept"
	lockFile  = "lock"
	upperDisk = "upper.ext4"

	consoleLog    = "console.log"
	supervisorLog = "supervisor.log"
	auditLog      = "audit.jsonl"

	idBytes = 6 // 48 random bits: enough for ids that live on one machine at one time
)

// Home is msb's state folder.
type Home struct{ dir string }

// OpenHome opens the folder dir, or $MSB_HOME, or ~/.msb, creates what is missing (mode 0700) and
// removes what killed supervisors left. A folder that others may write is ErrHome.
func OpenHome(dir string) (*Home, error) {
	if dir == "" {
		dir = os.Getenv(EnvHome)
	}
	if dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("no home folder (%w): set %s", err, EnvHome)
		}
		dir = filepath.Join(user, ".msb")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	h := &Home{dir: dir}
	for _, sub := range []string{"", imagesDir, kernelDir, guestDir, runsDir, keptDir, namedDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("state folder %s: %w; set %s to a folder that you may write", dir, err, EnvHome)
		}
		if err := checkOurs(filepath.Join(dir, sub), os.Geteuid()); err != nil {
			return nil, err
		}
	}
	return h, errors.Join(h.Sweep(), h.sweepNamed())
}

// Dir is the folder's absolute path.
func (h *Home) Dir() string { return h.dir }

// Images is where the image cache lives.
func (h *Home) Images() string { return filepath.Join(h.dir, imagesDir) }

// Kernel is where the guest kernel taken from libkrunfw is cached.
func (h *Home) Kernel() string { return filepath.Join(h.dir, kernelDir) }

// Guest is where the agent's root disk is cached.
func (h *Home) Guest() string { return filepath.Join(h.dir, guestDir) }

// Run is one sandbox's folder, locked by whoever holds Lock open.
type Run struct {
	ID   string
	Dir  string
	Lock *os.File
}

// NewRun makes and locks a folder for a new sandbox. The lock passes to every process that inherits
// Lock and is free when the last of them is gone, however it went.
func (h *Home) NewRun() (*Run, error) {
	var b [idBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	id := "sb-" + hex.EncodeToString(b[:])
	// Made under a name that Sweep passes over and renamed once it is locked, so that a sweep by
	// another process never sees it unlocked.
	temp := filepath.Join(h.dir, runsDir, "."+id)
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(temp, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	dir := filepath.Join(h.dir, runsDir, id)
	if err := os.Rename(temp, dir); err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(temp))
	}
	return &Run{ID: id, Dir: dir, Lock: lock}, nil
}

// Remove deletes the folder; a second call does nothing.
func (r *Run) Remove() error { return removeRun(r.Dir) }

func (h *Home) keptDir(id string) string { return filepath.Join(h.dir, keptDir, id) }

// Keep moves the folder to where Sweep leaves it alone and returns its new path.
func (h *Home) Keep(id string) (string, error) {
	to := h.keptDir(id)
	return to, os.Rename(filepath.Join(h.dir, runsDir, id), to)
}
