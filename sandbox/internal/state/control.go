package state

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// errNoControl means that the file in the place of a control socket is no
// socket.
var errNoControl = errors.New("it is no socket")

// DialControl connects to the control socket in dir, a path of any length. It follows no link: behind one is a socket
// of somebody else, whose process would be taken for the supervisor.
func DialControl(dir string) (net.Conn, error) { return dialSocket(dir, ControlSock) }

// DialPeer connects to the socket in dir that is for other sandboxes, as DialControl does.
func DialPeer(dir string) (net.Conn, error) { return dialSocket(dir, PeerSock) }

func dialSocket(dir, name string) (net.Conn, error) {
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), errNoControl)
	}
	path, done, err := shortPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialTimeout("unix", path, time.Second) //nolint:noctx,forbidigo // a file of ours, no network
}

func ListenControl(dir string) (*net.UnixListener, error) { return listenSocket(dir, ControlSock) }

func ListenPeer(dir string) (*net.UnixListener, error) { return listenSocket(dir, PeerSock) }

func listenSocket(dir, name string) (*net.UnixListener, error) {
	path, done, err := shortPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("the sandbox's %s: %w", name, err)
	}
	l.SetUnlinkOnClose(false) // by another path than it has then; cleanUp removes it
	return l, nil
}

// SocketPair returns the two ends of a stream socket: a connection to keep and a file to hand over.
func SocketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer func() { _ = ours.Close() }() // FileConn works on a duplicate
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}
