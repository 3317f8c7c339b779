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

// The directories and files of volumes under $MSB_HOME. A volume's lock is held by each machine that has its disk: shared
// by those that read, alone by the one that writes.
const (
	VolumesDir     = "volumes"
	VolumeFile     = "volume.json"
	VolumeDisk     = "disk.ext4"
	VolumeVersion  = 1
	maxVolumeName  = 63
	VolumeRoot     = "/volume"       // where a guest that only serves the volume's files has it
	volumeBusyWait = 2 * time.Second // how long the machine of a killed supervisor takes to end
)

// Errors about volumes.
var (
	ErrVolumeName = errors.New("invalid volume name")
	ErrNoVolume   = errors.New("no such volume")
	ErrVolumeBusy = errors.New("volume is in use")
	// ErrVolume means that a volume can't be attached or made.
	ErrVolume = errors.New("volume can't be attached")
)

// Volume is one that a guest sees.
type Volume struct {
	Name string `json:"name"`
	// Guest is absolute and clean.
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// StoredVolume is what is kept of a volume beside its disk.
type StoredVolume struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Size    int64     `json:"size"`
}

var (
	volumeForm = lazyregexp.New(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)                          // docker's
	volumeFile = lazyregexp.New(`^(lock|disk\.ext4|volume\.json|\.volume\.json[0-9]+)$`) // the last is one that renameio is writing
)

// VolumeForm is that of a volume's directory.
var VolumeForm = owned.Files(volumeFile.MatchString)

// CheckVolumeName says whether a volume may have this name.
func CheckVolumeName(name string) error {
	if len(name) > maxVolumeName || !volumeForm.MatchString(name) {
		return fmt.Errorf("%w %.80q: write 1 to %d letters, digits, hyphens, dots and underscores, the first a letter or digit", ErrVolumeName, name, maxVolumeName)
	}
	return nil
}

// VolumePath is a file of a volume's, or its directory.
func VolumePath(home, name string, file ...string) string {
	return filepath.Join(append([]string{home, VolumesDir, name}, file...)...)
}

// LockVolume takes a volume's lock, exclusive or shared, without waiting. Its errors are ErrNoVolume and
// ErrVolumeBusy.
func LockVolume(home, name string, shared bool) (*os.File, error) {
	if err := CheckVolumeName(name); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(VolumePath(home, name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, noVolume(name, err)
	}
	defer func() { _ = dir.Close() }()
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	lock, err := lockAs(dir, 0, how)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", ErrVolumeBusy, name)
	}
	if err != nil {
		return nil, noVolume(name, err)
	}
	if err := CheckLock(lock, VolumePath(home, name, LockFile)); err != nil {
		return nil, errors.Join(noVolume(name, err), lock.Close())
	}
	return lock, nil
}

func noVolume(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s; `msb volume ls` lists those there are", ErrNoVolume, name)
	}
	return fmt.Errorf("volume %s: %w", name, err)
}

// AttachVolume takes the lock of a volume for a machine, and names its disk. It waits for a machine that is about to
// end.
func AttachVolume(home string, v Volume) (disk string, lock *os.File, err error) {
	const pause = 50 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for left := volumeBusyWait; ; left -= pause {
		lock, err = LockVolume(home, v.Name, v.ReadOnly)
		if !errors.Is(err, ErrVolumeBusy) || left <= 0 {
			break
		}
		<-tick.C
	}
	switch {
	case errors.Is(err, ErrVolumeBusy) && v.ReadOnly:
		err = fmt.Errorf("%w; a sandbox writes to it, which excludes readers: stop that one", err)
	case errors.Is(err, ErrVolumeBusy):
		err = fmt.Errorf("%w; one sandbox may write to a volume, or several read it (-v %s:%s:ro in all): stop the others", err, v.Name, v.Guest)
	}
	if err != nil {
		return "", nil, err
	}
	if !v.ReadOnly {
		if err := CheckRoom(VolumePath(home, v.Name)); err != nil {
			return "", nil, errors.Join(err, lock.Close())
		}
	}
	return VolumePath(home, v.Name, VolumeDisk), lock, nil
}

// ReadVolume reads what is kept of a volume.
func ReadVolume(home, name string) (*StoredVolume, error) {
	if err := CheckVolumeName(name); err != nil {
		return nil, err
	}
	var v StoredVolume
	if err := ReadJSON(VolumePath(home, name), VolumeFile, &v); err != nil {
		return nil, noVolume(name, err)
	}
	if v.Version != VolumeVersion || v.Name != name {
		return nil, fmt.Errorf("%w: volume %s: its %s is of another msb or another volume", ErrState, name, VolumeFile)
	}
	return &v, nil
}
