//go:build linux

package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI14_ContainersAreApart: each kind of namespace is the container's own, and that of all its processes.
func TestI14_ContainersAreApart(t *testing.T) {
	b := newBench(t)
	c, err := b.add("exec sleep 1000", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for _, kind := range []string{"ipc", "uts", "mnt", "pid", "cgroup"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.PID, kind))
		if own[kind] = theirs; err != nil || err2 != nil || theirs == ours {
			t.Errorf("%s: the container is in %q, the agent in %q, %v, %v", kind, theirs, ours, err, err2)
		}
	}
	line := "for n in ipc uts mnt pid; do busybox readlink /proc/self/ns/$n; done; grep ^0: /proc/self/cgroup"
	out, _ := b.run(c.Exec(&ContainerProcess{Args: []string{"sh", "-c", line}, Env: []string{"PATH=/bin"}}))
	if want := strings.Join([]string{own["ipc"], own["uts"], own["mnt"], own["pid"], "0::/"}, "\n") + "\n"; out != want {
		t.Errorf("another process is in %q, want %q", out, want)
	}
}

// TestContainersProcessesKeepWhatTheyWereGiven: each set of capabilities, with those of the highest numbers; the home of the
// image's list of users; modes of file systems; and paths that are read-only with all that is mounted below.
func TestContainersProcessesKeepWhatTheyWereGiven(t *testing.T) {
	b := newBench(t)
	var data [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		t.Fatal(err)
	}
	high := uint64(0)
	for n := 32; n < len(capabilityNames); n++ {
		if data[1].Permitted&(1<<(n-32)) != 0 {
			high = 1 << n
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(b.root, "etc"), 0o755), os.WriteFile(filepath.Join(b.root, "etc/passwd"), []byte("web:x:7:8::/srv:/bin/sh\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const kill = 1 << 5
	c, err := b.add("grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | busybox tr -d '\\t'; echo $HOME; busybox stat -c %a /ro; grep -c ' /ro/sub tmpfs ro' /proc/mounts", func(s *ContainerSetup, p *ContainerProcess) {
		p.UID, p.GID = 7, 8
		p.Capabilities = CapabilitySets{Bounding: kill | high | 1, Permitted: kill | high | 1, Effective: kill | high, Inheritable: kill | high, Ambient: high}
		s.Mounts = append(s.Mounts, ContainerMount{Type: "tmpfs", Target: "/ro", Mode: 0o1755}, ContainerMount{Type: "tmpfs", Target: "/ro/sub"})
		s.ReadOnlyPaths = append(s.ReadOnlyPaths, "/ro")
	})
	if err != nil {
		t.Fatal(err)
	}
	out, st := b.run(c.Start())
	want := fmt.Sprintf("CapInh:%016x\nCapPrm:%016x\nCapEff:%016x\nCapBnd:%016x\nCapAmb:%016x\n/srv\n1755\n1\n", kill|high, high, high, kill|high|1, high)
	if out != want || st.ExitStatus() != 0 {
		t.Errorf("got %q, want %q, %v", out, want, st)
	}
}
