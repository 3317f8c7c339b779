//go:build linux

package fileops

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Change does the operation that req names. Its errors are a *fs.PathError or a
// *os.LinkError of the kernel's.
func Change(req *agentpb.ChangeRequest) error {
	switch c := req.GetChange().(type) {
	case *agentpb.ChangeRequest_Mkdir:
		return mkdir(c.Mkdir)
	case *agentpb.ChangeRequest_Remove:
		return remove(c.Remove.GetPath(), c.Remove.GetRecursive())
	case *agentpb.ChangeRequest_Rename:
		if err := check("rename", c.Rename.GetFrom(), c.Rename.GetTo()); err != nil {
			return err
		}
		return os.Rename(c.Rename.GetFrom(), c.Rename.GetTo())
	case *agentpb.ChangeRequest_Chmod:
		if err := check("chmod", c.Chmod.GetPath()); err != nil {
			return err
		}
		return os.Chmod(c.Chmod.GetPath(), agentpb.Permissions(c.Chmod.GetMode()))
	case *agentpb.ChangeRequest_Chown:
		if err := check("chown", c.Chown.GetPath()); err != nil {
			return err
		}
		return os.Lchown(c.Chown.GetPath(), int(c.Chown.GetOwner().GetUid()), int(c.Chown.GetOwner().GetGid()))
	case *agentpb.ChangeRequest_Symlink:
		if err := check("symlink", c.Symlink.GetPath()); err != nil {
			return err
		}
		return os.Symlink(c.Symlink.GetTarget(), c.Symlink.GetPath())
	}
	return &os.PathError{Op: "change", Path: "", Err: syscall.EINVAL}
}

func mkdir(m *agentpb.Mkdir) error {
	p, mode := m.GetPath(), agentpb.Permissions(m.GetMode())
	if err := check("mkdir", p); err != nil {
		return err
	}
	if m.GetMode() == 0 {
		mode = 0o755
	}
	if m.GetParents() {
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil { //nolint:gosec // what mkdir -p gives
			return err
		}
	}
	if err := os.Mkdir(p, mode); err != nil {
		return err
	}
	if o := m.GetOwner(); o != nil {
		if err := os.Lchown(p, int(o.GetUid()), int(o.GetGid())); err != nil {
			return err
		}
	}
	return os.Chmod(p, mode) // past the umask
}

func remove(p string, recursive bool) error {
	if err := check("remove", p); err != nil {
		return err
	}
	if !recursive {
		return os.Remove(p)
	}
	if filepath.Clean(p) == "/" {
		return &os.PathError{Op: "remove", Path: p, Err: syscall.EBUSY}
	}
	if _, err := os.Lstat(p); err != nil {
		return err // RemoveAll takes a missing file for removed
	}
	return os.RemoveAll(p)
}
