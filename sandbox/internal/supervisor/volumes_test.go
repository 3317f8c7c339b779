package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_VolumesAreAttachedAsTheyWereAsked: a disk that others read must be read-only to the device, to the guest and by its
// lock, and its writer's must be none of the three.
func TestI13_VolumesAreAttachedAsTheyWereAsked(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, name := range []string{"read", "written"} {
		dir := state.VolumePath(home, name)
		err := os.MkdirAll(dir, 0o700)
		for _, file := range []string{state.LockFile, state.VolumeDisk} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, upper := range []string{"", "upper"} {
		plan := &state.Plan{Home: home, UpperDisk: upper}
		plan.Volumes = []state.Volume{{Name: "read", Guest: "/r", ReadOnly: true}, {Name: "written", Guest: "/w"}}
		var spec vm.Spec
		if err := attachVolumes(plan, &spec); err != nil {
			t.Fatal(err)
		}
		want := []vm.Disk{{Path: state.VolumePath(home, "read", state.VolumeDisk), ReadOnly: true, ID: "volume0"}, {Path: state.VolumePath(home, "written", state.VolumeDisk), ID: "volume1"}}
		if len(spec.Disks) != 2 || spec.Disks[0] != want[0] || spec.Disks[1] != want[1] || len(spec.Held) != 2 {
			t.Errorf("the machine gets %+v and %d locks, want %+v", spec.Disks, len(spec.Held), want)
		}
		first := "vdc"
		if upper != "" {
			first = "vdd"
		}
		guest := volumesOf(plan)
		if len(guest) != 2 || guest[0] != (agentclient.Volume{Disk: agentclient.Disk{Serial: "volume0", Device: first}, Path: "/r", ReadOnly: true}) || guest[1].ReadOnly || guest[1].Path != "/w" || guest[1].Disk.Device == first {
			t.Errorf("the guest is told %+v", guest)
		}
		for name, shared := range map[string]bool{"read": true, "written": false} {
			lock, err := state.LockVolume(home, name, true)
			if errors.Is(err, state.ErrVolumeBusy) == shared {
				t.Errorf("another reader of the volume %s: %v", name, err)
			}
			if err == nil {
				_ = lock.Close()
			}
			if _, err := state.LockVolume(home, name, false); !errors.Is(err, state.ErrVolumeBusy) {
				t.Errorf("another writer of the volume %s: %v", name, err)
			}
		}
		if err := closeFiles(spec.Held); err != nil {
			t.Error(err)
		}
	}
	// The locks of a machine that can't have all of its volumes are free again.
	plan := &state.Plan{Home: home}
	plan.Volumes = []state.Volume{{Name: "written", Guest: "/w"}, {Name: "none", Guest: "/n"}}
	if err := attachVolumes(plan, &vm.Spec{}); !errors.Is(err, state.ErrNoVolume) {
		t.Errorf("%v, want ErrNoVolume", err)
	}
	if lock, err := state.LockVolume(home, "written", false); err != nil {
		t.Errorf("a lock stays: %v", err)
	} else if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

// TestI11_GuestFiguresAreBounded: they are the guest's own words, which programs add up.
func TestI11_GuestFiguresAreBounded(t *testing.T) {
	t.Parallel()
	const memory = 1 << 30
	for _, c := range []struct{ total, free, want int64 }{
		{100, 40, 60}, {100, 100, 0}, {100, 101, 0}, {0, 1, 0}, {-1, 0, 0}, {0, -1, 0}, {100, -1, 0}, {1 << 40, 0, memory},
		{-1 << 63, 1, 0}, {1<<63 - 1, -1, 0}, {1<<63 - 1, 0, memory},
	} {
		u := guestFigures(agentclient.Stats{MemoryTotalBytes: c.total, MemoryAvailableBytes: c.free, Processes: 3, OOMKills: -1}, memory)
		if u.MemoryUsed != c.want || u.Processes != 3 || u.OOMKills != 0 {
			t.Errorf("%d of %d free: %+v, want %d used", c.free, c.total, u, c.want)
		}
	}
}

// TestMachinesThatDoNotStartFreeTheirVolumes: where another volume is in use, or the caches can't be read, no lock is left.
func TestMachinesThatDoNotStartFreeTheirVolumes(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, name := range []string{"free", "taken"} {
		dir := state.VolumePath(home, name)
		must(t, os.MkdirAll(dir, 0o700))
		for _, file := range []string{state.LockFile, state.VolumeDisk} {
			must(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		}
	}
	plan := &state.Plan{Home: home}
	plan.Volumes = []state.Volume{{Name: "free", Guest: "/f"}, {Name: "taken", Guest: "/t"}}
	taken, err := state.LockVolume(home, "taken", false)
	must(t, err)
	if err := attachVolumes(plan, &vm.Spec{}); !errors.Is(err, state.ErrVolumeBusy) {
		t.Errorf("a volume in use: %v", err)
	}
	must(t, taken.Close())
	free := func(what string) {
		t.Helper()
		lock, err := state.LockVolume(home, "free", false)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must(t, lock.Close())
	}
	free("another is in use")
	var spec vm.Spec
	must(t, attachVolumes(plan, &spec)) // the twin
	if len(spec.Held) != 2 {
		t.Errorf("%d locks are held", len(spec.Held))
	}
	plan.Caches = []string{"pip"}
	must(t, os.WriteFile(state.CachesPath(home), nil, 0o600)) // no directory
	s := newSupervisor(plan, nil, nil)
	if err := s.attachCaches(&spec); err == nil {
		t.Error("caches that can't be read are attached")
	}
	free("the caches can't be read")
	must(t, os.Remove(state.CachesPath(home)))
	must(t, s.attachCaches(&vm.Spec{}))

	generation := state.CachesPath(home, state.NextGeneration(""))
	must(t, os.MkdirAll(generation, 0o700))
	must(t, os.WriteFile(filepath.Join(generation, state.LockFile), nil, 0o600))
	spec = vm.Spec{}
	if err := s.attachCaches(&spec); err != nil || len(spec.Held)+len(spec.Disks) > 0 {
		t.Errorf("empty caches: %+v, %v", spec, err)
	}
	lock, err := state.LockGeneration(home, filepath.Base(generation))
	if err != nil {
		t.Fatalf("empty caches are in use: %v", err)
	}
	must(t, lock.Close())
}

// TestCachesBelongToTheUserOfTheSandbox: the guest is told the user of -u, and without one the image's.
func TestCachesBelongToTheUserOfTheSandbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, image, want string }{
		{"1000", "web", "1000"}, {"0", "1000:1000", "0"}, {"1000", "", "1000"}, {"", "web", "web"}, {"", "", ""},
	} {
		plan := &state.Plan{}
		plan.Caches, plan.DirectoryUser, plan.Image.User = []string{"pip"}, c.flag, c.image
		var root agentclient.Root
		must(t, newSupervisor(plan, nil, nil).addCaches(&root))
		if root.CacheUser != c.want || len(root.Caches) != 1 {
			t.Errorf("-u %q of an image with user %q: the guest is told %q, %+v", c.flag, c.image, root.CacheUser, root.Caches)
		}
	}
}

// TestCachesAreWhereTheToolsLook: a sandbox's variable replaces the image's.
func TestCachesAreWhereTheToolsLook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ image, own, want string }{
		{"/image", "", "/image"}, {"", "/own", "/own"}, {"/image", "/own", "/own"},
	} {
		plan := &state.Plan{}
		plan.Caches = []string{"pip"}
		if c.image != "" {
			plan.Image.Env = []string{"PIP_CACHE_DIR=" + c.image}
		}
		if c.own != "" {
			plan.Env = []string{"PIP_CACHE_DIR=" + c.own}
		}
		var root agentclient.Root
		must(t, newSupervisor(plan, nil, nil).addCaches(&root))
		if len(root.Caches) != 1 || root.Caches[0].Path != c.want {
			t.Errorf("%q in the image, %q in the sandbox: %+v", c.image, c.own, root.Caches)
		}
	}
}

// TestI13_MachinesHoldTheDiskOfCaches: the command that changes them may be killed, and the next one begins.
func TestI13_MachinesHoldTheDiskOfCaches(t *testing.T) {
	t.Parallel()
	plan := &state.Plan{CacheWork: filepath.Join(t.TempDir(), "disk")}
	if err := os.WriteFile(plan.CacheWork, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var spec vm.Spec
	if err := attachVolumes(plan, &spec); err != nil || len(spec.Disks) != 1 || spec.Disks[0].Path != plan.CacheWork {
		t.Fatalf("%+v, %v", spec.Disks, err)
	}
	if _, err := state.LockDisk(plan.CacheWork, 0); !errors.Is(err, state.ErrRunning) {
		t.Errorf("another machine: %v", err)
	}
	if err := closeFiles(spec.Held); err != nil {
		t.Fatal(err)
	}
	lock, err := state.LockDisk(plan.CacheWork, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Close()
}
