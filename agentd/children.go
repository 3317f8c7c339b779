//go:build linux

package agentd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// childMount keeps the one mount for all listeners of a guest's life.
var childMount sync.Mutex

// childSocket is openChildSocket.
type childSocket func(root *workload.Root, user string) (net.Listener, error)

// openChildSocket makes the socket over which programs of that user, and root's, ask for children, and puts the agent's own
// program beside it. Both lie in a file system of their own, whose directory is root's: nobody else can put another socket
// in its place, and the kernel lets nobody else connect.
func openChildSocket(root *workload.Root, user string) (l net.Listener, err error) {
	childMount.Lock()
	defer childMount.Unlock()
	program, err := cloneSelf()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(program) }()
	err = root.Run(func() error {
		if err := mountChildDir(program); err != nil {
			return err
		}
		l, err = listenAs(agentpb.ChildSocket, user)
		return err
	})
	return l, err
}

// cloneSelf is a copy of the mount of the agent's own program, which has no place yet and can't be written to.
func cloneSelf() (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/exe", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open the agent's own program: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return -1, errors.Join(fmt.Errorf("hold the agent's own program read-only: %w", err), unix.Close(tree))
	}
	return tree, nil
}

// mountChildDir mounts the directory, with a program in it. The calling thread stands in the workload's root.
func mountChildDir(program int) error {
	if err := os.MkdirAll(agentpb.ChildDir, 0o755); err != nil { //nolint:gosec // as other tools make mount points
		return err
	}
	if err := unix.Mount("msb", agentpb.ChildDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k,nr_inodes=16"); err != nil {
		return fmt.Errorf("mount %s: %w", agentpb.ChildDir, err)
	}
	f, err := os.OpenFile(agentpb.ChildProgram, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o555) //nolint:gosec // every user may run it
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return unix.MoveMount(program, "", unix.AT_FDCWD, agentpb.ChildProgram, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// listenAs makes a socket in a directory that is this process's, for one user. Until it is that user's nobody can connect
// but root.
func listenAs(path, user string) (net.Listener, error) {
	owner, err := workload.LookupOwner(user)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}) // 0755 at most, and to connect is to write
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would be looked for in the agent's own root
	if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, int(owner.UID), int(owner.GID))); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
