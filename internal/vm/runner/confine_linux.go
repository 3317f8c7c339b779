package runner

import (
	"fmt"
	"os/signal"

	"golang.org/x/sys/unix"
)

// maxOpenFiles is RLIMIT_NOFILE of a VMM: disks, event descriptors and a
// handful of channels, with room for one event descriptor per queue and CPU.
const maxOpenFiles = 4096

// confine takes rights away from the calling thread, except system calls, which
// refuseSyscalls restricts. It returns what is in force, in words for users.
func confine(p *Plan) ([]string, error) {
	var done []string
	if p.Namespaces {
		if err := enterRoot(p); err != nil {
			return nil, &namespaceError{err}
		}
		done = append(done, "own user, mount, network, pid, ipc and uts namespaces", "a root of only its own files")
	}
	if err := limitResources(p); err != nil {
		return nil, err
	}
	done = append(done, "no core dumps, no locked memory, no file over the largest disk's size")
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	switch abi := landlockABI(); {
	case abi > 0:
		if err := landlock(p, abi); err != nil {
			return nil, err
		}
		done = append(done, fmt.Sprintf("Landlock (ABI %d)", abi))
	case !p.Namespaces:
		done = append(done, "neither namespaces nor Landlock: files are not confined")
	}
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	done = append(done, "no capabilities", "no_new_privs")
	if p.Recording {
		return append(done, "seccomp: records and refuses nothing"), nil
	}
	return append(done, "seccomp: only the system calls that a VMM needs"), nil
}

func limitResources(p *Plan) error {
	size := uint64(max(p.MaxFile, 0))
	for _, limit := range []struct {
		name     string
		resource int
		most     uint64
	}{
		// The guest's memory is the VMM's memory: a core dump would hold all of it.
		{"forbid core dumps", unix.RLIMIT_CORE, 0},
		// A writable disk must not fill the host's.
		{"limit the size of files", unix.RLIMIT_FSIZE, size},
		{"forbid locked memory", unix.RLIMIT_MEMLOCK, 0},
	} {
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: limit.most, Max: limit.most}); err != nil {
			return fmt.Errorf("%s: %w", limit.name, err)
		}
	}
	// A write beyond the limit then fails instead of killing the process.
	signal.Ignore(unix.SIGXFSZ)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Max = min(files.Max, maxOpenFiles)
	files.Cur = files.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
}

// dropCapabilities leaves the thread, and what it executes, without any, even
// as user 0 of its namespace.
func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a capability that this kernel does not know. EPERM: an
		// ordinary user, who has none to drop.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL && err != unix.EPERM {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	// Ambient capabilities go first: they are what execve would carry over.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
