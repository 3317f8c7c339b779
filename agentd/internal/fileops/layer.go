//go:build linux

package fileops

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

const (
	// maxLayerPath bounds the paths that are sent, in bytes: the host puts its
	// own directory in front of them.
	maxLayerPath = 3 << 10

	// layerBatch and layerBatchBytes bound a message: entries, and the bytes of
	// their names.
	layerBatch      = 512
	layerBatchBytes = 64 << 10
)

// Layer calls send with what is in an overlay's upper layer, parents first.
// omitted is how many have paths that are too long, but for what is in
// them. No layer is an empty one.
func Layer(ctx context.Context, dir string, send func([]*agentpb.LayerEntry) error) (omitted int64, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	w := &layerWalk{ctx: ctx, root: root, dir: dir, send: send}
	err = w.directory(".")
	return w.omitted, errors.Join(err, w.flush())
}

// layerWalk goes through a layer. io/fs can't: it has no names that aren't UTF-8.
type layerWalk struct {
	ctx     context.Context
	root    *os.Root
	dir     string
	send    func([]*agentpb.LayerEntry) error
	batch   []*agentpb.LayerEntry
	size    int
	omitted int64
}

func (w *layerWalk) flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	err := w.send(w.batch)
	w.batch, w.size = w.batch[:0], 0
	return err
}

func (w *layerWalk) directory(at string) error {
	f, err := w.root.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since the directory around it was read
	}
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.entry(path.Join(at, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (w *layerWalk) entry(name string) error {
	if len(name) > maxLayerPath {
		w.omitted++
		return nil
	}
	e, err := layerEntry(w.root, w.dir, name)
	if err != nil {
		return err
	}
	w.batch, w.size = append(w.batch, e), w.size+len(e.GetPath())+len(e.GetTarget())
	if len(w.batch) == layerBatch || w.size > layerBatchBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if e.GetMode()&unix.S_IFMT == unix.S_IFDIR {
		return w.directory(name)
	}
	return nil
}

func layerEntry(root *os.Root, dir, name string) (*agentpb.LayerEntry, error) {
	st, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: errors.ErrUnsupported}
	}
	e := &agentpb.LayerEntry{Path: []byte(name), Mode: sys.Mode, Size: st.Size()}
	switch sys.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		var target string
		target, err = root.Readlink(name)
		e.Target = []byte(target)
	case unix.S_IFCHR: // Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories"
		e.Whiteout = sys.Rdev == 0
	case unix.S_IFDIR:
		var value [1]byte
		n, err := unix.Lgetxattr(filepath.Join(dir, name), "trusted.overlay.opaque", value[:])
		e.Opaque = err == nil && n == 1 && value[0] == 'y'
	}
	return e, err
}

// ReadLayer calls send with the bytes of a regular file of a layer.
func ReadLayer(dir, name string, send func([]byte) error) error {
	if !filepath.IsLocal(name) {
		return &fs.PathError{Op: "read", Path: name, Err: syscall.EINVAL}
	}
	return Read(filepath.Join(dir, name), 0, 0, send)
}
