//go:build linux

package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

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
// omitted is how many have names that can't be sent: too long, or no UTF-8. No
// layer is an empty one.
func Layer(ctx context.Context, dir string, send func([]*agentpb.LayerEntry) error) (omitted int64, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	var batch []*agentpb.LayerEntry
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := send(batch)
		batch, size = batch[:0], 0
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) || name == "." && err == nil {
			return nil
		}
		if err != nil {
			return err
		}
		sendable := len(name) <= maxLayerPath && utf8.ValidString(name)
		if !sendable && d.IsDir() {
			omitted++
			return fs.SkipDir
		}
		e, err := layerEntry(root, dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed since its directory was read
		}
		if err != nil {
			return err
		}
		if !sendable || !utf8.ValidString(e.GetTarget()) {
			omitted++
			return nil
		}
		batch, size = append(batch, e), size+len(e.GetPath())+len(e.GetTarget())
		if len(batch) == layerBatch || size > layerBatchBytes {
			return flush()
		}
		return nil
	})
	return omitted, errors.Join(err, flush())
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
	e := &agentpb.LayerEntry{Path: name, Mode: sys.Mode, Size: st.Size()}
	switch sys.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		e.Target, err = root.Readlink(name)
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
