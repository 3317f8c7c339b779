package qemu

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// shareInfix is between a template's name and the random end of a socket's. Each process that runs a copy has such a
	// socket, by which others get the memory that it has read. What killed processes left is removed by who finds it.
	shareInfix = ".share-"
	// shareTries bounds the processes that are asked before the memory is read from the disk, shareWait the time of each.
	shareTries = 4
	shareWait  = 200 * time.Millisecond
	// leftAfter is how old a socket is that nobody listens at, and that is removed.
	leftAfter = 10 * time.Second
)

// share is a template's memory among the processes that run copies of it.
type share struct {
	path string // the template's
	key  [sha256.Size]byte
	size int64
}

// shareOf returns the share of an open template: of this very file, since another may come in its place.
func shareOf(path string, f *os.File, size int64) (*share, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	is := fmt.Sprintf("%d:%d:%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), size)
	return &share{path, sha256.Sum256([]byte(is)), size}, nil
}

var errNotShared = errors.New("no process has this memory for others")

// borrow returns the memory that another process has read. Nobody can change it any more.
func (s *share) borrow() (*os.File, error) {
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	tries := 0
	for _, name := range names {
		if !strings.HasPrefix(name, filepath.Base(s.path)+shareInfix) {
			continue
		}
		memory, err := s.ask(within107(dir, name))
		switch {
		case err == nil:
			return memory, nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT): // its process is gone; it is no socket; a link without one
			if removeLeft(filepath.Join(dir.Name(), name)) == nil {
				continue
			}
		}
		if tries++; tries == shareTries {
			break
		}
	}
	return nil, errNotShared
}

// removeLeft removes what nobody listens at. What has just been made is left: its process is about to listen.
func removeLeft(path string) error {
	info, err := os.Lstat(path)
	if err == nil && time.Since(info.ModTime()) > leftAfter {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// within107 is a path of a file in an open directory that fits in a socket's address.
func within107(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

func (s *share) ask(path string) (*os.File, error) {
	conn, err := net.DialTimeout("unix", path, shareWait) //nolint:noctx,forbidigo // a file of ours, no network
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(shareWait)); err != nil {
		return nil, err
	}
	return s.take(conn.(*net.UnixConn))
}

// take receives what lend sends.
func (s *share) take(conn *net.UnixConn) (*os.File, error) {
	key, oob := make([]byte, len(s.key)), make([]byte, unix.CmsgLen(4)) // the padding of CmsgSpace has room for another
	n, oobn, _, _, err := conn.ReadMsgUnix(key, oob)
	if err != nil {
		return nil, err
	}
	memory, err := received(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if [sha256.Size]byte(key) != s.key || n != len(key) {
		err = errNotShared // but that of another template
	} else {
		err = s.check(memory)
	}
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return memory, nil
}

// received returns the one descriptor of a message. Where the room for one is aligned, another may come with it.
func received(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i]) // none of another kind
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "memory"))
		}
	}
	if len(files) != 1 {
		return nil, errors.Join(errNotShared, closeAll(files))
	}
	return files[0], nil
}

// check refuses what anybody could change yet.
func (s *share) check(memory *os.File) error {
	got, err := unix.FcntlInt(memory.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return os.NewSyscallError("look at the seals of memory", err)
	}
	info, err := memory.Stat()
	if err != nil {
		return err
	}
	if got&seals != seals || info.Size() != s.size {
		return fmt.Errorf("memory of another process has %d bytes and the seals %#x", info.Size(), got)
	}
	return nil
}

// lend hands memory to every process that asks for it, until done is closed. It takes memory over.
func (s *share) lend(memory *os.File, done <-chan struct{}) error {
	path := s.path + shareInfix + rand.Text()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return errors.Join(err, memory.Close())
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: within107(dir, filepath.Base(path)), Net: "unix"})
	if err != nil {
		return errors.Join(err, memory.Close())
	}
	l.SetUnlinkOnClose(false) // it would remove the path by which it was made
	end := sync.OnceFunc(func() {
		_ = errors.Join(l.Close(), os.Remove(path)) // what is left is removed by who finds it
	})
	go func() {
		<-done
		end()
	}()
	go s.serve(l, memory, end)
	return nil
}

// serve answers until l fails.
func (s *share) serve(l *net.UnixListener, memory *os.File, end func()) {
	defer memory.Close()
	defer end() // of one that ran out of descriptors, say: who asked later would wait for an answer
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(shareWait))
		_, _, _ = conn.WriteMsgUnix(s.key[:], unix.UnixRights(int(memory.Fd())), nil) // who gets none reads the disk
		_ = conn.Close()
	}
}
