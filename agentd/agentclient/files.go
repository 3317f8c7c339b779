package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Files are the operations on a guest's files. Paths are absolute and name files as the guest's
// processes see them. Errors of the guest's kernel are a *fs.PathError, so that errors.Is finds
// fs.ErrNotExist, fs.ErrExist, fs.ErrPermission and syscall.ENOSPC. Its methods may be called
// from several goroutines; the guest does 64 operations at once and answers ErrBusy above.
type Files struct {
	c   *Client
	api agentpb.FilesClient
}

// Files gives access to the guest's files.
func (c *Client) Files() *Files { return &Files{c: c, api: c.files} }

// FileInfo describes a file of the guest. It implements fs.FileInfo and fs.DirEntry.
type FileInfo struct {
	name    string
	mode    fs.FileMode
	size    int64
	modTime time.Time
	// UID and GID are the guest's numbers.
	UID, GID uint32
	// Target is where a symbolic link leads, as it is written in the link.
	Target string
}

var (
	_ fs.FileInfo = FileInfo{}
	_ fs.DirEntry = FileInfo{}
)

// Name is the last element of the path.
func (i FileInfo) Name() string { return i.name }

// Size is the length in bytes.
func (i FileInfo) Size() int64 { return i.size }

// Mode has type and permissions.
func (i FileInfo) Mode() fs.FileMode { return i.mode }

// ModTime is when the content changed, by the guest's clock.
func (i FileInfo) ModTime() time.Time { return i.modTime }

// IsDir tells directories.
func (i FileInfo) IsDir() bool { return i.mode.IsDir() }

// Sys is nil.
func (i FileInfo) Sys() any { return nil }

// Type is the type of Mode.
func (i FileInfo) Type() fs.FileMode { return i.mode.Type() }

// Info returns i.
func (i FileInfo) Info() (fs.FileInfo, error) { return i, nil }

const (
	// maxNameBytes is NAME_MAX of Linux, maxTargetBytes PATH_MAX.
	maxNameBytes   = 255
	maxTargetBytes = 4096

	// maxEntries and maxEntryBytes bound a listing of one directory: entries, and
	// the bytes of their names and links. Together they are about 300 MB.
	maxEntries    = 1 << 20
	maxEntryBytes = 128 << 20
)

// fileInfo checks what the guest says of a file.
func fileInfo(m *agentpb.FileInfo) (FileInfo, error) {
	name, target := string(m.GetName()), string(m.GetTarget())
	if name != "/" && (name == "" || len(name) > maxNameBytes || strings.ContainsAny(name, "/\x00") || name == "." || name == "..") {
		return FileInfo{}, fmt.Errorf("%w: a file named %q", ErrProtocol, guestText(name))
	}
	if len(target) > maxTargetBytes || m.GetSize() < 0 {
		return FileInfo{}, fmt.Errorf("%w: a link of %d bytes, a file of %d", ErrProtocol, len(target), m.GetSize())
	}
	return FileInfo{
		name: name, mode: fileMode(m.GetMode()), size: m.GetSize(), modTime: time.Unix(0, m.GetModifiedUnixNs()),
		UID: m.GetUid(), GID: m.GetGid(), Target: target,
	}, nil
}

// fileMode makes Go's mode of Linux's st_mode (inode(7)).
func fileMode(mode uint32) fs.FileMode {
	m := agentpb.Permissions(mode)
	switch mode & 0o170000 {
	case 0o100000:
	case 0o040000:
		m |= fs.ModeDir
	case 0o120000:
		m |= fs.ModeSymlink
	case 0o010000:
		m |= fs.ModeNamedPipe
	case 0o140000:
		m |= fs.ModeSocket
	case 0o020000:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		m |= fs.ModeDevice
	default:
		m |= fs.ModeIrregular
	}
	return m
}

// maxErrno is the highest number of errno(3).
const maxErrno = 133

// guestFileError is the guest's refusal of a file operation, nil for other errors.
func guestFileError(err error) *fs.PathError {
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		e, ok := d.(*agentpb.FileError)
		if ok && e.GetErrno() > 0 && e.GetErrno() <= maxErrno {
			return &fs.PathError{Op: guestText(e.GetOp()), Path: guestText(e.GetPath()), Err: syscall.Errno(e.GetErrno())}
		}
	}
	return nil
}

// fileError translates the error of a file call: into a *fs.PathError with the guest's errno,
// or as callError does.
func (f *Files) fileError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if p := guestFileError(err); p != nil && f.c.Err() == nil && ctx.Err() == nil {
		return fmt.Errorf("in the guest: %w", p)
	}
	return f.c.callError(ctx, err)
}

// Stat describes the file at path; with follow, what a link there leads to.
func (f *Files) Stat(ctx context.Context, name string, follow bool) (FileInfo, error) {
	m, err := f.api.Stat(ctx, &agentpb.StatRequest{Path: name, Follow: follow})
	if err != nil {
		return FileInfo{}, f.fileError(ctx, err)
	}
	return f.checked(m)
}

// checked ends the session over a description that no file can have.
func (f *Files) checked(m *agentpb.FileInfo) (FileInfo, error) {
	i, err := fileInfo(m)
	if err != nil {
		return i, f.c.fail(err)
	}
	return i, nil
}

// ReadDir lists a directory in the order of names: at most 1,048,576 entries
// with 128 MiB of names and links, else errTooLarge.
func (f *Files) ReadDir(ctx context.Context, dir string) ([]FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.api.List(ctx, &agentpb.ListRequest{Path: dir})
	if err != nil {
		return nil, f.fileError(ctx, err)
	}
	var out []FileInfo
	size := 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, f.fileError(ctx, err)
		}
		for _, e := range m.GetEntries() {
			i, err := f.checked(e)
			if err != nil {
				return nil, err
			}
			if size += len(i.name) + len(i.Target); len(out) == maxEntries || size > maxEntryBytes {
				return nil, fmt.Errorf("%w: %s holds more than %d entries, or %d MiB of names and links", errTooLarge, path.Clean(dir), maxEntries, maxEntryBytes>>20)
			}
			out = append(out, i)
		}
	}
}

// Owner is a user and group of the guest, by number.
type Owner struct{ UID, GID uint32 }

func (o *Owner) message() *agentpb.Owner {
	if o == nil {
		return nil
	}
	return &agentpb.Owner{Uid: o.UID, Gid: o.GID}
}

func (f *Files) change(ctx context.Context, req *agentpb.ChangeRequest) error {
	_, err := f.api.Change(ctx, req)
	return f.fileError(ctx, err)
}

// MkdirOptions says how a directory is made.
type MkdirOptions struct {
	// Mode is 0755 if it is 0.
	Mode fs.FileMode
	// Parents also makes missing parents, and accepts an existing directory.
	Parents bool
	// Owner is root if it is nil.
	Owner *Owner
}

// Mkdir makes a directory.
func (f *Files) Mkdir(ctx context.Context, dir string, o MkdirOptions) error {
	m := &agentpb.Mkdir{Path: dir, Mode: agentpb.LinuxPermissions(o.Mode), Parents: o.Parents, Owner: o.Owner.message()}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Mkdir{Mkdir: m}})
}

// Remove removes a file or an empty directory; with recursive, a directory with
// all that is in it. A link is removed, not what it leads to.
func (f *Files) Remove(ctx context.Context, name string, recursive bool) error {
	m := &agentpb.Remove{Path: name, Recursive: recursive}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Remove{Remove: m}})
}

// Rename moves a file or directory; a file at to is replaced.
func (f *Files) Rename(ctx context.Context, from, to string) error {
	m := &agentpb.Rename{From: from, To: to}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Rename{Rename: m}})
}

// Chmod sets permissions, setuid, setgid and sticky bit.
func (f *Files) Chmod(ctx context.Context, name string, mode fs.FileMode) error {
	m := &agentpb.Chmod{Path: name, Mode: agentpb.LinuxPermissions(mode)}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Chmod{Chmod: m}})
}

// Chown sets the owner of a file, or of a link itself.
func (f *Files) Chown(ctx context.Context, name string, o Owner) error {
	m := &agentpb.Chown{Path: name, Owner: o.message()}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Chown{Chown: m}})
}

// Symlink makes a symbolic link at name that leads to target.
func (f *Files) Symlink(ctx context.Context, target, name string) error {
	m := &agentpb.Symlink{Target: target, Path: name}
	return f.change(ctx, &agentpb.ChangeRequest{Change: &agentpb.ChangeRequest_Symlink{Symlink: m}})
}
