//go:build linux

package system

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mount is one file system of the machine.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

const noPrograms = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// agentMounts are what agentd itself needs, in its own root.
var agentMounts = []mount{
	{"proc", "/proc", "proc", noPrograms, ""},
	{"sysfs", "/sys", "sysfs", noPrograms, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755"},
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=1m"},
	{"cgroup2", CgroupMount, "cgroup2", noPrograms, ""},
}

// CgroupMount is where agentd sees the control groups.
const CgroupMount = "/sys/fs/cgroup"

// Boot mounts what PID 1 needs for itself. What a loader mounted before is
// taken as it is. Only a kernel without cgroup2 is no error.
func Boot() error {
	for _, m := range agentMounts {
		err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data)
		if err == nil || errors.Is(err, unix.EBUSY) || m.kind == "cgroup2" {
			continue
		}
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// maxOpenFiles are the soft and hard limits of processes: the soft one small
// enough for programs that close every possible descriptor one by one.
var maxOpenFiles = unix.Rlimit{Cur: 65_536, Max: 1 << 20}

// Settle sets what processes inherit from PID 1, and lets every user ping.
func Settle() {
	unix.Umask(0o022)
	// Kernels with a lower fs.nr_open keep their own limit.
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &maxOpenFiles)
	_ = setSysctl("net/ipv4/ping_group_range", "0 2147483647")
	_ = setSysctl("net/ipv4/ip_unprivileged_port_start", "0")
}

func setSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}
