package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// MaxVolumes bounds how many volumes one sandbox sees: QEMU's microvm has eight virtio devices, and console, network,
// agent, image and writable layer are five of them. Caches take the place of one.
const MaxVolumes = 3

// VolumeStatus is a volume as `msb volume ls` shows it.
type VolumeStatus struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Size is that of its file system, Used what it takes on this machine, in bytes.
	Size int64 `json:"size_bytes"`
	Used int64 `json:"used_bytes"`
	// Busy tells that a machine has it now.
	Busy bool `json:"in_use"`
	// Sandboxes are the names of those that are made with it, running or not.
	Sandboxes []string `json:"sandboxes,omitempty"`
	// Disk is its file: an ext4 file system.
	Disk string `json:"disk"`
	// Problem says why its state can't be read.
	Problem string `json:"problem,omitempty"`
}

// Volumes are the volumes of a state directory.
type Volumes struct{ home *Home }

// Volumes are h's.
func (h *Home) Volumes() Volumes { return Volumes{h} }

// Create makes an empty volume; size 0 is DefaultDisk. ErrExists if there is one of that name.
func (vs Volumes) Create(name string, size int64) error { return Fail(vs.create(name, size)) }

func (vs Volumes) create(name string, size int64) error {
	if err := state.CheckVolumeName(name); err != nil {
		return err
	}
	if size == 0 {
		size = DefaultDisk
	}
	if err := makeDir(filepath.Join(vs.home.dir, state.VolumesDir), mkdirReal); err != nil {
		return err
	}
	temp := filepath.Join(vs.home.dir, state.VolumesDir, filepath.Base(state.HiddenPath(vs.home.dir)))
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	err := state.WriteJSON(temp, state.VolumeFile, state.StoredVolume{Version: state.VolumeVersion, Name: name, Created: time.Now().UTC().Round(0), Size: size})
	if err == nil {
		err = image.CreateUpper(filepath.Join(temp, state.VolumeDisk), size)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(temp, state.LockFile), nil, 0o600)
	}
	if err == nil {
		err = os.Rename(temp, state.VolumePath(vs.home.dir, name))
		if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
			err = fmt.Errorf("%w: volume %s; `msb volume inspect %s` tells about it, `msb volume rm %s` removes it", ErrExists, name, name, name)
		}
	}
	if err != nil {
		return errors.Join(err, state.RemoveOwn(temp, state.VolumeForm))
	}
	return nil
}

// List returns all of them, in the order of their names.
func (vs Volumes) List() ([]VolumeStatus, error) {
	names, err := vs.names()
	if err != nil {
		return nil, Fail(err)
	}
	used, err := vs.users()
	if err != nil {
		return nil, Fail(err)
	}
	all := make([]VolumeStatus, 0, len(names))
	for _, name := range names {
		v, err := vs.status(name, used)
		if errors.Is(err, state.ErrNoVolume) {
			continue // removed just now
		}
		if err != nil {
			v = &VolumeStatus{Name: name, Problem: err.Error(), Sandboxes: used[name], Disk: state.VolumePath(vs.home.dir, name, state.VolumeDisk)}
		}
		all = append(all, *v)
	}
	return all, nil
}

func (vs Volumes) names() (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(vs.home.dir, state.VolumesDir)) // sorted
	if err != nil {
		return nil, state.UnlessGone(err)
	}
	for _, e := range entries {
		if e.IsDir() && state.CheckVolumeName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// users are the names of the sandboxes that are made with each volume.
func (vs Volumes) users() (map[string][]string, error) {
	all, err := vs.home.List()
	if err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for i := range all {
		for _, v := range all[i].Volumes {
			users[v.Name] = append(users[v.Name], all[i].Name)
		}
	}
	return users, nil
}

// Inspect tells about the volume of that name.
func (vs Volumes) Inspect(name string) (*VolumeStatus, error) {
	used, err := vs.users()
	if err != nil {
		return nil, Fail(err)
	}
	v, err := vs.status(name, used)
	return v, Fail(err)
}

func (vs Volumes) status(name string, users map[string][]string) (*VolumeStatus, error) {
	st, err := state.ReadVolume(vs.home.dir, name)
	if err != nil {
		return nil, err
	}
	disk := state.VolumePath(vs.home.dir, name, state.VolumeDisk)
	v := &VolumeStatus{Name: name, Created: st.Created, Size: st.Size, Used: allocated(disk), Sandboxes: users[name], Disk: disk}
	lock, err := state.LockVolume(vs.home.dir, name, false)
	if errors.Is(err, state.ErrVolumeBusy) {
		v.Busy = true
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	return v, lock.Close()
}

// Remove removes a volume and all that it holds. ErrVolumeBusy while a machine has it, and while a sandbox is made
// with it.
func (vs Volumes) Remove(name string) error { return Fail(vs.remove(name)) }

func (vs Volumes) remove(name string) error {
	lock, err := state.LockVolume(vs.home.dir, name, false)
	if errors.Is(err, state.ErrVolumeBusy) {
		return fmt.Errorf("%w; stop the sandboxes that have it first: `msb volume inspect %s`", err, name)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	users, err := vs.users()
	if err != nil {
		return err
	}
	if len(users[name]) > 0 {
		return fmt.Errorf("%w: %s: sandbox %s is made with it; `msb rm %s` removes that", state.ErrVolumeBusy, name, users[name][0], users[name][0])
	}
	dir, err := os.Open(filepath.Join(vs.home.dir, state.VolumesDir))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	volume, err := owned.Open(dir, name)
	if err != nil {
		return err
	}
	err = owned.Check(volume, state.VolumeForm)
	if err = errors.Join(err, volume.Close()); err != nil {
		return fmt.Errorf("volume %s stays: %w; move it away first", name, err)
	}
	gone := filepath.Join(vs.home.dir, state.VolumesDir, filepath.Base(state.HiddenPath(vs.home.dir)))
	if err := os.Rename(state.VolumePath(vs.home.dir, name), gone); err != nil { // from here on it isn't there, however far the removal comes
		return err
	}
	return state.RemoveOwn(gone, state.VolumeForm)
}

// Prune removes the volumes that no sandbox is made with and no machine has, and tells which.
func (vs Volumes) Prune(dry bool) (removed []VolumeStatus, err error) {
	all, err := vs.List()
	if err != nil {
		return nil, err
	}
	list, err := vs.home.List()
	if err != nil {
		return nil, Fail(err)
	}
	for i := range list {
		if list[i].Problem != "" {
			return nil, Fail(fmt.Errorf("%w: sandbox %s is damaged, so that its volumes are unknown: `msb rm %s`, or remove volumes by name", ErrState, list[i].Name, list[i].Name))
		}
	}
	var errs []error
	for i := range all {
		v := &all[i]
		if v.Busy || len(v.Sandboxes) > 0 || v.Problem != "" {
			continue
		}
		if !dry {
			if err := vs.Remove(v.Name); errors.Is(err, state.ErrVolumeBusy) {
				continue // taken meanwhile
			} else if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		removed = append(removed, *v)
	}
	return removed, errors.Join(errs...)
}

// Open starts a sandbox without a network that holds nothing but the volume, at VolumeRoot: its files can be copied.
func (vs Volumes) Open(ctx context.Context, name string, readOnly bool, o StartOptions) (*Sandbox, error) {
	if _, err := state.ReadVolume(vs.home.dir, name); err != nil {
		return nil, Fail(err)
	}
	return Start(ctx, Config{
		Home: vs.home.dir, Program: o.Program, Progress: o.Progress, Notice: o.Notice, NoNet: true,
		Volumes: []Volume{{Name: name, Guest: VolumeRoot, ReadOnly: readOnly}},
	})
}

// VolumeRoot is where the guest of Volumes.Open has the volume.
const VolumeRoot = state.VolumeRoot

// checkVolumes says why the volumes can't be.
func (c *Config) checkVolumes() error {
	if len(c.Volumes) > 0 && c.Floor != nil && !c.OperatorVolumes {
		return fmt.Errorf("%w: under an operator's floor a sandbox gets what the floor names, and a floor can't name volumes; leave -v out", ErrVolume)
	}
	if len(c.Volumes) == MaxVolumes && len(c.Caches) > 0 {
		return fmt.Errorf("%w: %d of them and caches, which take the place of one", ErrVolume, len(c.Volumes))
	}
	if len(c.Volumes) > MaxVolumes {
		return fmt.Errorf("%w: %d of them, and a machine has room for %d beside its own disks; leave one out, or put several directories on one volume", ErrVolume, len(c.Volumes), MaxVolumes)
	}
	for i, v := range c.Volumes {
		if err := state.CheckVolumeName(v.Name); err != nil {
			return err
		}
		if !path.IsAbs(v.Guest) || path.Clean(v.Guest) != v.Guest || guestsOwn(v.Guest) {
			return fmt.Errorf("%w: %s at %q; write an absolute path that is not the guest's own, such as /data", ErrVolume, v.Name, v.Guest)
		}
		for _, o := range c.Volumes[:i] {
			if o.Name == v.Name || o.Guest == v.Guest {
				return fmt.Errorf("%w: %s at %s: two of the same name or place", ErrVolume, v.Name, v.Guest)
			}
		}
		if slices.ContainsFunc(c.Tmpfs, func(t Tmpfs) bool { return holds(v.Guest, t.Path) }) {
			return fmt.Errorf("%w: %s at %s would cover a tmpfs; choose another place", ErrVolume, v.Name, v.Guest)
		}
		if slices.ContainsFunc(c.Directories, func(d Directory) bool { return holds(d.Guest, v.Guest) }) { // which are mounted later
			return fmt.Errorf("%w: %s at %s: a directory of this machine would cover it; choose another place", ErrVolume, v.Name, v.Guest)
		}
	}
	return nil
}

// makeVolumes makes the volumes that a sandbox writes to and that are not there, as docker does.
func (c *Config) makeVolumes(h *Home) error {
	for _, v := range c.Volumes {
		_, err := state.ReadVolume(h.dir, v.Name)
		if errors.Is(err, state.ErrNoVolume) && !v.ReadOnly {
			if err = h.Volumes().create(v.Name, 0); errors.Is(err, ErrExists) {
				err = nil // made just now
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepVolumes removes what is half made or half removed.
func sweepVolumes(h *Home) error {
	err := sweepDir(h, state.VolumesDir, func(all *os.File, e fs.DirEntry) error {
		name := e.Name()
		if !hiddenName.MatchString(name) {
			return nil
		}
		dir, err := owned.Open(all, name)
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		if !abandoned(dir) {
			return nil
		}
		return state.RemoveIn(all, dir, name, state.VolumeForm)
	})
	return state.UnlessGone(err)
}
