package runner

import (
	"fmt"
	"golang.org/x/sys/unix"
)

// maxOpenFiles is RLIMIT_NOFILE of a VMM: disks, event descriptors and a
// handful of channels, with room for one event descriptor per queue and CPU.
const maxOpenFiles = 4096

// confine takes rights away from the calling thread, weakest bond first. It
// returns what is in force, for people.
func confine(p *Plan) ([]string, error) {
	var done []string
	if p.Namespaces {
		if err := enterRoot(p); err != nil {
			return nil, &namespaceError{err}
		}
		done = append(done, "own user, mount, network, pid, ipc and uts namespaces", "a root of only its own files")
	}
	if err := limitResources(); err != nil {
		return nil, err
	}
	done = append(done, "no core dumps")
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	if abi := landlockABI(); abi > 0 {
		if err := landlock(p, abi); err != nil {
			return nil, err
		}
		done = append(done, fmt.Sprintf("Landlock (ABI %d)", abi))
	}
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	if err := refuseSyscalls(); err != nil {
		return nil, err
	}
	return append(done, "no capabilities", "no_new_privs", "seccomp: no new sockets, no tracing"), nil
}

func limitResources() error {
	// The guest's memory is the VMM's memory: a core dump would hold all of it.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
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
