//go:build linux

package fileops

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// maxWatches bounds the directories of one watch: the kernel keeps about 1 KiB
// for each. A larger tree is refused.
const maxWatches = 8192

const watchMask = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_ATTRIB

var errTooManyDirs = fmt.Errorf("more than %d directories to watch", maxWatches)

type watcher struct {
	in        *os.File
	recursive bool
	paths     map[int32]string
}

// Watch calls send with what happens at and, in a directory, below p until ctx
// is done. The first call has nothing in it: from then on all events come.
func Watch(ctx context.Context, p string, recursive bool, send func(*agentpb.WatchResponse) error) error {
	if err := check("watch", p); err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	w := &watcher{in: os.NewFile(uintptr(fd), "inotify"), recursive: recursive, paths: map[int32]string{}}
	defer func() { _ = w.in.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = w.in.Close() })
	defer stop()
	if err := w.add(path.Clean(p), nil); err != nil {
		return err
	}
	if err := send(&agentpb.WatchResponse{}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := w.in.Read(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		out, err := w.events(buf[:n])
		if err != nil {
			return err
		}
		if err := sendEvents(out, send); err != nil {
			return err
		}
	}
}

const (
	// maxEvents bounds what is collected before it is sent; more is an overflow.
	maxEvents = 8192

	// eventBatch is how many events go into one message: with paths of 4,095
	// bytes they stay below agentpb.MaxMessageBytes.
	eventBatch = 128
)

func sendEvents(out *agentpb.WatchResponse, send func(*agentpb.WatchResponse) error) error {
	for batch := range slices.Chunk(out.GetEvents(), eventBatch) {
		if err := send(&agentpb.WatchResponse{Events: batch}); err != nil {
			return err
		}
	}
	if out.GetOverflow() {
		return send(&agentpb.WatchResponse{Overflow: true})
	}
	return nil
}

// add watches p and, if the watch is recursive, the directories below. What is
// in them already is added to found: it came before its directory's watch.
func (w *watcher) add(p string, found *agentpb.WatchResponse) error {
	if err := w.one(p); err != nil {
		return err
	}
	st, err := os.Lstat(p)
	if err != nil || !st.IsDir() || (!w.recursive && found == nil) {
		return nil //nolint:nilerr // gone again: its directory's watch reports it
	}
	return filepath.WalkDir(p, func(sub string, d fs.DirEntry, err error) error {
		if err != nil || sub == p {
			return nil //nolint:nilerr // gone again
		}
		if found != nil {
			note(found, agentpb.WatchEvent_KIND_CREATED, sub)
		}
		if !d.IsDir() {
			return nil
		}
		if !w.recursive {
			return fs.SkipDir
		}
		if err := w.one(sub); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (w *watcher) one(p string) error {
	if len(w.paths) >= maxWatches {
		return &os.PathError{Op: "watch", Path: p, Err: errTooManyDirs}
	}
	// Not File.Fd, which makes reads block so that Close can't end them.
	conn, err := w.in.SyscallConn()
	if err != nil {
		return err
	}
	var id int
	var failed error
	err = conn.Control(func(fd uintptr) { id, failed = unix.InotifyAddWatch(int(fd), p, watchMask|unix.IN_DONT_FOLLOW) })
	if err == nil && failed != nil {
		err = &os.PathError{Op: "watch", Path: p, Err: failed}
	}
	if err != nil {
		return err
	}
	w.paths[int32(id)] = p
	return nil
}

// forget drops the watches of a directory that was moved away, since their
// paths are wrong from then on.
func (w *watcher) forget(dir string) error {
	conn, err := w.in.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) {
		for id, p := range w.paths {
			if p == dir || strings.HasPrefix(p, dir+"/") {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(id)) // gone already
				delete(w.paths, id)
			}
		}
	})
}

// events reads the kernel's records, as inotify(7) has them.
func (w *watcher) events(b []byte) (*agentpb.WatchResponse, error) {
	out := &agentpb.WatchResponse{}
	for len(b) >= unix.SizeofInotifyEvent {
		id, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b) {
			break
		}
		name := unix.ByteSliceToString(b[unix.SizeofInotifyEvent:size])
		b = b[size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			out.Overflow = true
			continue
		}
		dir, ok := w.paths[id]
		if mask&unix.IN_IGNORED != 0 {
			delete(w.paths, id)
			continue
		}
		if !ok {
			continue
		}
		p := path.Join(dir, name)
		note(out, kindOf(mask), p)
		if mask&unix.IN_ISDIR != 0 && mask&unix.IN_MOVED_FROM != 0 {
			if err := w.forget(p); err != nil {
				return nil, err
			}
		}
		if mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && w.recursive {
			if err := w.add(p, out); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return out, nil
}

func note(out *agentpb.WatchResponse, kind agentpb.WatchEvent_Kind, p string) {
	if len(out.GetEvents()) >= maxEvents {
		out.Overflow = true
		return
	}
	out.Events = append(out.Events, &agentpb.WatchEvent{Kind: kind, Path: []byte(p)})
}

func kindOf(mask uint32) agentpb.WatchEvent_Kind {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return agentpb.WatchEvent_KIND_CREATED
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_MOVED_FROM|unix.IN_MOVE_SELF) != 0:
		return agentpb.WatchEvent_KIND_REMOVED
	case mask&unix.IN_ATTRIB != 0:
		return agentpb.WatchEvent_KIND_ATTRIBUTES
	}
	return agentpb.WatchEvent_KIND_WRITTEN
}
