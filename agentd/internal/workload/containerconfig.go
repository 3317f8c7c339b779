//go:build linux

package workload

import (
	"fmt"
	"math/bits"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ContainerSetup is what the first process of a container makes of its namespaces.
type ContainerSetup struct {
	// Place is a directory of the agent's own with the empty directories "root" and "dev".
	Place         string
	Mounts        []ContainerMount
	ReadOnlyRoot  bool
	Hostname      string
	Sysctls       map[string]string
	MaskedPaths   []string
	ReadOnlyPaths []string
	// CA is added to the root's lists of trusted roots, if it is not empty.
	CA []byte
}

// ContainerMount is one mount of a container.
type ContainerMount struct {
	Type, Target string
	Attributes   int // MOUNT_ATTR_*
	// Bind is the place of the mount among those that are handed over, for "bind"; File tells that it is of a file.
	Bind int
	File bool
	// Size and Mode are of "tmpfs".
	Size int64
	Mode uint32
}

// ContainerProcess is a process of a container.
type ContainerProcess struct {
	Args, Env       []string
	Cwd             string
	UID, GID        uint32
	Groups          []uint32
	Capabilities    CapabilitySets
	Rlimits         []Rlimit
	NoNewPrivileges bool
	TTY             bool
	Size            Size
	Umask           *uint32
	OOMScoreAdj     *int32
	// TrustEnv adds the variables that name the root's bundle of trusted roots, unless Env has them.
	TrustEnv bool
}

// CapabilitySets have a bit for each capability.
type CapabilitySets struct{ Bounding, Effective, Inheritable, Permitted, Ambient uint64 }

// capabilityNames are in the order of their numbers (linux/capability.h).
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// CapabilitySet makes a set of names such as "CAP_CHOWN".
func CapabilitySet(names []string) (set uint64, err error) {
next:
	for _, name := range names {
		for i, known := range capabilityNames {
			if strings.TrimPrefix(name, "CAP_") == known {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("there is no capability %.40q", name)
	}
	return set, nil
}

// Check says what of the process can't be honoured, and names the field.
func (p *ContainerProcess) Check() error {
	if err := checkStrings(Command{Argv: p.Args, Env: p.Env, Dir: p.Cwd}); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	if p.Cwd != "" && !path.IsAbs(p.Cwd) {
		return fmt.Errorf("cwd %.80q is not absolute", p.Cwd)
	}
	const none = 1<<32 - 1 // means "no change" to the system calls
	if p.UID == none || p.GID == none {
		return fmt.Errorf("user %d:%d: the highest number is reserved", p.UID, p.GID)
	}
	if len(p.Groups) > maxGroups {
		return fmt.Errorf("additional groups: %d of them, at most %d may be", len(p.Groups), maxGroups)
	}
	if err := checkRlimits(p.Rlimits); err != nil {
		return fmt.Errorf("rlimits: %w", err)
	}
	if a := p.OOMScoreAdj; a != nil && (*a < -1000 || *a > 1000) {
		return fmt.Errorf("oomScoreAdj %d is not between -1000 and 1000", *a)
	}
	c := p.Capabilities
	switch {
	case c.Effective&^c.Permitted != 0:
		return fmt.Errorf("capabilities: %s is effective and not permitted", firstCapability(c.Effective&^c.Permitted))
	case c.Ambient&^(c.Permitted&c.Inheritable) != 0:
		return fmt.Errorf("capabilities: %s is ambient and not both permitted and inheritable", firstCapability(c.Ambient&^(c.Permitted&c.Inheritable)))
	}
	return nil
}

func firstCapability(set uint64) string { return "CAP_" + capabilityNames[bits.TrailingZeros64(set)] }

// namespacedSysctls are those of namespaces that a container has to itself, and of the network that its sandbox is for.
var namespacedSysctls = []string{"kernel/shm", "kernel/msg", "kernel/sem", "fs/mqueue/", "net/"}

// sysctlPath is the file of a sysctl below /proc/sys.
func sysctlPath(name string) (string, error) {
	file := name
	if !strings.Contains(name, "/") {
		file = strings.ReplaceAll(name, ".", "/")
	}
	if path.IsAbs(file) || path.Clean(file) != file {
		return "", fmt.Errorf("sysctl %.80q is no name", name)
	}
	for _, prefix := range namespacedSysctls {
		if strings.HasPrefix(file, prefix) {
			return file, nil
		}
	}
	return "", fmt.Errorf("sysctl %.80q is not of the container's namespaces", name)
}

// Check says what of the setup can't be honoured, and names the field.
func (s *ContainerSetup) Check() error {
	for i, m := range s.Mounts {
		if !path.IsAbs(m.Target) || path.Clean(m.Target) == "/" || strings.IndexByte(m.Target, 0) >= 0 {
			return fmt.Errorf("mounts[%d]: the target %.80q is no absolute path below /", i, m.Target)
		}
		switch m.Type {
		case "bind", "tmpfs", "proc", "sysfs", "mqueue", "cgroup", "devpts":
		default:
			return fmt.Errorf("mounts[%d]: the type %.40q is unknown", i, m.Type)
		}
		if m.Type == "devpts" && path.Clean(m.Target) != "/dev/pts" {
			return fmt.Errorf("mounts[%d]: devpts at %.80q; it can be at /dev/pts alone", i, m.Target)
		}
	}
	for field, list := range map[string][]string{"maskedPaths": s.MaskedPaths, "readonlyPaths": s.ReadOnlyPaths} {
		for _, p := range list {
			if !path.IsAbs(p) || strings.IndexByte(p, 0) >= 0 {
				return fmt.Errorf("%s: %.80q is not absolute", field, p)
			}
		}
	}
	for name := range s.Sysctls {
		if _, err := sysctlPath(name); err != nil {
			return err
		}
	}
	if len(s.Hostname) > 64 {
		return fmt.Errorf("hostname: %d bytes, at most 64 may be", len(s.Hostname))
	}
	return nil
}

// attach moves a mount that is attached nowhere to what is open at target.
func attach(mount, target int) error {
	return unix.MoveMount(mount, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// newMount makes a mount of a file system of the kernel's own that is attached nowhere.
func newMount(kind string, attributes int, options ...[2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }() // the mount is made by then
	for _, o := range append([][2]string{{"source", kind}}, options...) {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
}
