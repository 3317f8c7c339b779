package runner

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This is Landlock by its three system calls, on the calling thread alone.
// The usual library (landlock-lsm/go-landlock) restricts every thread of the
// process and walks /proc to do so; here the thread is about to execve, which
// ends the others, and its root has no /proc any more.

// Rights that Landlock knows, by the version (ABI) that brought them, as far as
// they are handled here: handled and not granted means refused.
// Source: linux/landlock.h and Documentation/userspace-api/landlock.rst.
const (
	fsRights1 = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	fsRights2  = unix.LANDLOCK_ACCESS_FS_REFER
	fsRights3  = unix.LANDLOCK_ACCESS_FS_TRUNCATE
	netRights4 = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	fsRights5  = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	scope6     = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

	readRights   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	writeRights  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// dirOnly are rights that the kernel refuses in a rule about a file.
	dirOnly = unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// landlockABI returns the kernel's Landlock version, 0 when it has none.
func landlockABI() int {
	v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// handled is everything that a kernel of the given version can refuse.
func handled(abi int) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fsRights1}
	for _, step := range []struct {
		abi            int
		fs, net, scope uint64
	}{{2, fsRights2, 0, 0}, {3, fsRights3, 0, 0}, {4, 0, netRights4, 0}, {5, fsRights5, 0, 0}, {6, 0, 0, scope6}} {
		if abi >= step.abi {
			attr.Handled_access_fs |= step.fs
			attr.Handled_access_net |= step.net
			attr.Scoped |= step.scope
		}
	}
	return attr
}

// landlock shuts the filesystem but for the plan's files. It needs no_new_privs.
func landlock(p *Plan, abi int) error {
	attr := handled(abi)
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("create a landlock ruleset: %w", errno)
	}
	ruleset := int(fd)
	defer unix.Close(ruleset)
	for _, set := range []struct {
		paths  []string
		rights uint64
	}{{p.ReadOnly, readRights}, {p.ReadWrite, writeRights}, {p.Devices, deviceRights}} {
		for _, path := range set.paths {
			if err := allow(ruleset, path, set.rights&attr.Handled_access_fs); err != nil {
				return fmt.Errorf("allow %s by landlock: %w", path, err)
			}
		}
	}
	if p.Itself {
		err := allowOpen(ruleset, p.program, (readRights&^dirOnly)&attr.Handled_access_fs)
		// A file without a name takes no rule and needs none: Landlock lets all of them be read and executed. This one
		// is sealed, and the filter lets no other be made.
		if err != nil && !errors.Is(err, unix.EBADFD) {
			return fmt.Errorf("allow this program by landlock: %w", err)
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict by landlock: %w", errno)
	}
	return nil
}

// allow adds a rule about one path. A path that is not there needs none, nor
// does a link: Landlock asks nothing of it, and a rule would be about what it
// leads to (/lib leads to all of /usr/lib).
func allow(ruleset int, path string, rights uint64) error {
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return nil
	}
	if !info.IsDir() {
		rights &^= dirOnly
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return allowOpen(ruleset, fd, rights)
}

// allowOpen adds a rule about what a descriptor leads to.
func allowOpen(ruleset, fd int, rights uint64) error {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
