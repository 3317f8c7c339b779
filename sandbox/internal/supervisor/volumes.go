package supervisor

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// attachVolumes adds the volumes' disks to a machine. The machine's process holds their locks, even if this one is
// killed: they are free once nothing can write to the disks any more.
func attachVolumes(plan *state.Plan, spec *vm.Spec) error {
	for i, v := range plan.Volumes {
		path, lock, err := state.AttachVolume(plan.Home, v)
		if err != nil {
			return errors.Join(err, closeFiles(spec.Held))
		}
		spec.Held = append(spec.Held, lock)
		spec.Disks = append(spec.Disks, vm.Disk{Path: path, ReadOnly: v.ReadOnly, ID: volumeSerial(i)})
	}
	if plan.CacheWork != "" { // whose lock the command has, which may be killed while this goes on
		lock, err := state.LockDisk(plan.CacheWork, time.Second)
		if err != nil {
			return errors.Join(err, closeFiles(spec.Held))
		}
		spec.Held = append(spec.Held, lock)
		spec.Disks = append(spec.Disks, vm.Disk{Path: plan.CacheWork, ID: volumeSerial(len(plan.Volumes))})
	}
	return nil
}

// attachCaches adds the disk of the newest caches, if there is any.
func (s *supervisor) attachCaches(spec *vm.Spec) error {
	if len(s.plan.Caches) == 0 {
		return nil
	}
	dir, lock, err := state.AttachCaches(s.plan.Home)
	if err != nil {
		return errors.Join(err, closeFiles(spec.Held))
	}
	disk := filepath.Join(dir, state.CacheDisk)
	if _, err := os.Lstat(disk); dir == "" || errors.Is(err, fs.ErrNotExist) { // nothing was committed yet
		if lock != nil {
			err = lock.Close()
		}
		return state.UnlessGone(err)
	}
	spec.Held = append(spec.Held, lock)
	s.cacheDisk = agentclient.Disk{Serial: serialCaches, Device: "vd" + string(rune('a'+len(spec.Disks)))}
	spec.Disks = append(spec.Disks, vm.Disk{Path: disk, ReadOnly: true, ID: serialCaches})
	return nil
}

// addCaches says where the guest has its caches.
func (s *supervisor) addCaches(root *agentclient.Root) error {
	if len(s.plan.Caches) == 0 {
		return nil
	}
	env := slices.Concat(s.plan.Image.Env, s.plan.Env)
	for _, tool := range s.plan.Caches {
		all, err := state.CachesOf(tool, env)
		if err != nil {
			return err
		}
		for _, c := range all {
			root.Caches = append(root.Caches, agentclient.Cache(c))
		}
	}
	root.CacheDisk, root.CacheUser = s.cacheDisk, cmp.Or(s.plan.DirectoryUser, s.plan.Image.User)
	return nil
}

func volumeSerial(i int) string { return "volume" + strconv.Itoa(i) }

func volumesOf(plan *state.Plan) []agentclient.Volume {
	next := 'c' // behind the agent's and the image's
	if plan.UpperDisk != "" {
		next++
	}
	volumes := make([]agentclient.Volume, 0, len(plan.Volumes))
	for i, v := range plan.Volumes {
		volumes = append(volumes, agentclient.Volume{Disk: agentclient.Disk{Serial: volumeSerial(i), Device: "vd" + string(next)}, Path: v.Guest, ReadOnly: v.ReadOnly})
		next++
	}
	if plan.CacheWork != "" {
		volumes = append(volumes, agentclient.Volume{Disk: agentclient.Disk{Serial: volumeSerial(len(plan.Volumes)), Device: "vd" + string(next)}, Path: state.VolumeRoot})
	}
	return volumes
}

func closeFiles(files []*os.File) error {
	errs := make([]error, 0, len(files))
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
