package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/tartree"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Files is what can be done with a sandbox's files, MkdirOptions how it makes a directory.
type (
	Files        = agentclient.Files
	MkdirOptions = agentclient.MkdirOptions
)

// Files gives access to the guest's files.
func (s *Sandbox) Files() *Files { return s.client.Files() }

// CopyOptions says how files are copied between host and guest.
type CopyOptions struct {
	// Follow copies what the source leads to if it is a symbolic link.
	Follow bool
	// KeepOwner gives files in the guest the numeric owner that they have on the
	// host. Without it they are root's. Copies on the host are always the
	// process's own.
	KeepOwner bool
}

// CopyReport says what was copied.
type CopyReport struct {
	Entries, Bytes int64
	// Skipped names devices, FIFOs and sockets that were left out: at most 64.
	// SkippedMore counts further ones.
	Skipped     []string
	SkippedMore int64
}

// ErrCopy means that source and destination of a copy don't go together, as
// with a directory onto a file.
var ErrCopy = errors.New("copy")

// contents tells whether a path names what is in a directory, as DIR/. does.
func contents(p string) bool { return p == "." || p == "/" || strings.HasSuffix(p, "/.") }

// Follows tells whether a copy is of what a link at src leads to.
func (o CopyOptions) Follows(src string) bool {
	return o.Follow || contents(src) || strings.HasSuffix(src, "/")
}

// target is where a copy goes: the name under a directory that exists.
type target struct{ dir, name string }

// targetOf decides as docker cp does. st describes what is at dst, nil if there
// is nothing; base is the source's own name.
func targetOf(src, base string, srcDir bool, dst string, st fs.FileInfo) (target, error) {
	switch {
	case st != nil && !st.IsDir() && !st.Mode().IsRegular(): // the rename at the end would put a file in place of /dev/null
		return target{}, fmt.Errorf("%w: %s is a device, FIFO or socket, which no copy replaces", ErrCopy, dst)
	case st != nil && st.IsDir() && srcDir && contents(src):
		return target{dst, "."}, nil
	case st != nil && st.IsDir():
		return target{dst, base}, nil
	case st != nil && (srcDir || strings.HasSuffix(dst, "/")):
		return target{}, fmt.Errorf("%w: %s is a file; a directory can't replace it", ErrCopy, dst)
	case st == nil && !srcDir && strings.HasSuffix(dst, "/"):
		return target{}, fmt.Errorf("%w: %s does not exist; make the directory first, or leave out the slash", ErrCopy, dst)
	}
	clean := path.Clean(dst)
	return target{path.Dir(clean), path.Base(clean)}, nil
}

// CopyTo copies a file or directory of the host to the guest, with docker cp's
// rules: into dst if that is a directory, else as dst; src ending in "/." copies
// what is in a directory. Symbolic links stay what they are.
func (s *Sandbox) CopyTo(ctx context.Context, src, dst string, o CopyOptions) (CopyReport, error) {
	named, err := filepath.Abs(src)
	real := named
	if err == nil && o.Follows(src) {
		real, err = filepath.EvalSymlinks(named)
	}
	var st fs.FileInfo
	if err == nil {
		st, err = os.Lstat(real)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return CopyReport{}, fmt.Errorf("%w: there is no %s on this machine", ErrCopy, src)
	}
	if err != nil {
		return CopyReport{}, err
	}
	guest := s.Files()
	if err := s.CheckReach(dst); err != nil {
		return CopyReport{}, err
	}
	there, err := existing(guest.Stat(ctx, path.Clean(dst), true)) // a trailing slash or dot is targetOf's
	if err != nil {
		return CopyReport{}, err
	}
	to, err := targetOf(src, filepath.Base(named), st.IsDir(), dst, there)
	if err != nil {
		return CopyReport{}, err
	}
	root, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { _ = root.Close() }()
	owner := &agentclient.Owner{}
	if o.KeepOwner {
		owner = nil
	}
	reader, writer := io.Pipe()
	type result struct {
		tartree.Report
		err error
	}
	packed := make(chan result, 1)
	go func() {
		r, err := tartree.Pack(ctx, writer, root, filepath.Base(real), tartree.PackOptions{As: to.name})
		broken := err
		if errors.Is(err, tartree.ErrChanged) {
			broken = nil // the archive is complete
		}
		_ = writer.CloseWithError(broken)
		packed <- result{r, err}
	}()
	_, err = guest.Unpack(ctx, to.dir, reader, owner)
	_ = reader.Close()
	r := <-packed
	if err == nil {
		err = r.err
	}
	return CopyReport(r.Report), err
}

// existing makes a missing file nil.
func existing(st agentclient.FileInfo, err error) (fs.FileInfo, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// existingHere describes what is at dst on this machine; nil for nothing. A link to anything but a directory is refused:
// the guest may have made it, so it isn't followed, and it is not replaced either, since it may be /dev/stdout.
func existingHere(dst string) (fs.FileInfo, error) {
	there, err := os.Stat(dst)
	if errors.Is(err, fs.ErrNotExist) {
		there, err = nil, nil
	}
	if err != nil || there != nil && there.IsDir() {
		return there, err
	}
	if st, err := os.Lstat(dst); err == nil && st.Mode().Type() == fs.ModeSymlink {
		return nil, fmt.Errorf("%w: %s is a symbolic link, which no copy follows or replaces; name the file itself (standard output is -, as a tar archive)", ErrCopy, dst)
	}
	return there, nil
}

// CopyFrom copies a file or directory of the guest to the host, with the rules
// of CopyTo. What the guest sends is written to the one name that dst means and
// nowhere else. Links come as they are: they may lead anywhere on the host.
func (s *Sandbox) CopyFrom(ctx context.Context, src, dst string, o CopyOptions) (CopyReport, error) {
	guest := s.Files()
	if err := s.CheckReach(src); err != nil {
		return CopyReport{}, err
	}
	st, err := guest.Stat(ctx, strings.TrimSuffix(src, "/."), o.Follows(src))
	if err != nil {
		return CopyReport{}, err
	}
	there, err := existingHere(dst)
	if err != nil {
		return CopyReport{}, err
	}
	to, err := targetOf(src, path.Base(path.Clean(src)), st.IsDir(), dst, there)
	if err != nil {
		return CopyReport{}, err
	}
	root, err := os.OpenRoot(to.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return CopyReport{}, fmt.Errorf("%w: there is no directory %s on this machine; make it first", ErrCopy, to.dir)
	}
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { _ = root.Close() }()
	limit, err := state.Spare(to.dir)
	if err != nil {
		return CopyReport{}, err
	}
	in, err := guest.Pack(ctx, strings.TrimSuffix(src, "/."), "", o.Follows(src))
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { _ = in.Close() }()
	// Each entry takes a block or an inode, however empty it is: a guest could send directories without end.
	r, err := tartree.Extract(ctx, in, root, to.name, tartree.UnpackOptions{DropSetID: true, MaxBytes: limit, MaxEntries: max(1, limit/entryBytes)})
	if err == nil {
		_, err = io.Copy(io.Discard, in) // the report is behind the archive
	}
	sent := in.Report()
	r.Skipped, r.SkippedMore = append(r.Skipped, sent.Skipped...), r.SkippedMore+sent.SkippedMore
	return CopyReport(r), err
}
