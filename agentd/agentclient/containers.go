package agentclient

import (
	"io"
	"net/netip"
	"time"
)

// ContainerConfig says what a container is: a process tree of a guest with a root, control group, and mount, process,
// IPC and host name namespaces of its own. It shares the guest's network. Paths of the host are absolute and without
// links.
type ContainerConfig struct {
	// ID is 1 to 128 letters, digits, ".", "_" and "-", and no other container's of the sandbox. It is never part of a path.
	ID string
	// Root is a directory of the host, which is served read-only; what the container writes is on the sandbox's own disk.
	Root         string
	ReadOnlyRoot bool
	// Mounts are made in this order. /dev with its usual devices and /dev/pts are there without one; mounts of the types
	// "tmpfs" at /dev and "devpts" at /dev/pts change nothing of them.
	Mounts   []ContainerMount
	Hostname string
	Process  ContainerProcess
	// MaskedPaths are covered, and ReadOnlyPaths made read-only, where they are there.
	MaskedPaths, ReadOnlyPaths []string
	// Sysctls are those of the container's IPC namespace and of the network that all of the sandbox shares: kernel.shm*,
	// kernel.msg*, kernel.sem, fs.mqueue.* and net.*.
	Sysctls   map[string]string
	Resources ContainerResources
}

// ContainerMount is one mount of a container. Links in Target lead nowhere but inside the container's root, and for the
// kernel's own file systems there may be none.
type ContainerMount struct {
	// Type is "bind", "tmpfs", "proc", "sysfs", "mqueue", "cgroup" or "devpts".
	Type string
	// Source is a directory or a regular file of the host, for "bind". Users and groups of its files are the host's.
	Source string
	// Target is absolute. What is missing of it is made.
	Target                          string
	ReadOnly, NoSuid, NoDev, NoExec bool
	// SizeBytes, 0 for half of the memory, and Mode, 0 for 01777, are of a tmpfs.
	SizeBytes int64
	Mode      uint32
	// Shared is the name of a tmpfs that all containers with that name have, and that lives as long as the sandbox: the first
	// one's size, mode and owner count. SubPath is what is mounted of it, below its root; a directory is made where nothing is.
	Shared   string
	SubPath  string
	UID, GID uint32
}

// ContainerProcess is a process of a container.
type ContainerProcess struct {
	// Args[0] is looked up in the PATH of Env unless it holds a slash.
	Args, Env []string
	// Cwd is made where it is missing, for the container's first process; empty means "/".
	Cwd            string
	UID, GID       uint32
	AdditionalGIDs []uint32
	Capabilities   Capabilities
	// Rlimits have names as in ExecOptions, or as in getrlimit(2): "RLIMIT_NOFILE".
	Rlimits         []Rlimit
	NoNewPrivileges bool
	Terminal        bool
	ConsoleSize     Size
	Umask           *uint32
	OOMScoreAdj     *int
}

// Capabilities are names such as "CAP_CHOWN".
type Capabilities struct{ Bounding, Effective, Inheritable, Permitted, Ambient []string }

// ContainerResources are the limits of a container's control group; 0 sets none, and MemoryBytes below 0 takes one away.
// Those of the sandbox stand above them.
type ContainerResources struct {
	MemoryBytes int64
	// CPUWeight is 1 to 10000 (cpu.weight).
	CPUWeight uint64
	// CPUQuota in each CPUPeriod, which is 100 ms for 0.
	CPUQuota, CPUPeriod time.Duration
	PIDs                int64
	// Unified are further files of control groups of version 2 and what is written to them: "memory.high": "1048576".
	Unified map[string]string
}

// ContainerStdio are a process's streams; each may be nil. Stdin is read until its end, CloseStdin or the end of the
// process; a Read that is under way then is left behind. With a terminal, Stderr is not used.
type ContainerStdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// ContainerExit is how a process of a container ended.
type ContainerExit struct {
	// Code is 0 to 255; 128 and the signal when one ended the process.
	Code   int
	Signal Signal
	// At is the host's time.
	At        time.Time
	OOMKilled bool
}

// ContainerStats is what the guest says of a container's control group, in the kernel's names.
type ContainerStats struct {
	// Memory is memory.stat, CPU cpu.stat (in microseconds), MemoryEvents memory.events.
	Memory, CPU, MemoryEvents map[string]uint64
	MemoryCurrent, MemoryPeak uint64
	// MemoryLimit and PIDsLimit are math.MaxUint64 without a limit.
	MemoryLimit, PIDsCurrent, PIDsLimit uint64
}

// ContainerEvent says that the kernel killed processes of a container for lack of memory.
type ContainerEvent struct {
	ID string
	// OOMKills is how many, since the container was made.
	OOMKills uint64
}

// ListeningSocket is a socket of the guest that takes connections, or datagrams from anybody.
type ListeningSocket struct {
	// Network is "tcp" or "udp".
	Network string
	// Address has the guest's address, or 0.0.0.0 or [::].
	Address netip.AddrPort
}
