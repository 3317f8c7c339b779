package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

const (
	// maxLayerEntries and maxLayerBytes bound what a guest may send of a layer:
	// entries, and the bytes of their paths and links.
	maxLayerEntries = 1 << 18
	maxLayerBytes   = 64 << 20
)

// LayerEntry is a file in the layer of a directory with CopyOnWrite, as the guest reports it:
// only its form is checked.
type LayerEntry struct {
	// Path is from the directory's top, with slashes; no element is "." or "..".
	Path string
	Mode fs.FileMode
	Size int64
	// Target is where a symbolic link leads, as it is written in the link.
	Target string
	// Whiteout says that the file below is removed, Opaque that the contents of the directory
	// below are hidden.
	Whiteout, Opaque bool
}

// Layer is all that a guest changed in a directory.
type Layer struct {
	Entries []LayerEntry
	// Omitted counts further files whose paths are too long to be sent.
	Omitted int64
}

// errManyChanges means that the layer holds more than 262,144 files, or their
// paths more than 64 MiB.
var errManyChanges = errors.New("too many changes to list")

// Changes lists the layer of the directory that is, or was, attached at path.
func (c *Client) Changes(ctx context.Context, path string) (*Layer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.dirs.Changes(ctx, &agentpb.ChangesRequest{Path: path})
	if err != nil {
		return nil, c.Files().fileError(ctx, err)
	}
	l, size := &Layer{}, 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, c.Files().fileError(ctx, err)
		}
		l.Omitted = max(m.GetOmitted(), 0)
		for _, e := range m.GetEntries() {
			entry, err := layerEntry(e)
			if err != nil {
				return nil, c.fail(err)
			}
			if size += len(entry.Path) + len(entry.Target); len(l.Entries) == maxLayerEntries || size > maxLayerBytes {
				return nil, fmt.Errorf("%w: in %s are more than %d files that the guest made or changed, or %d MiB of names; remove in the guest what is not wanted", errManyChanges, path, maxLayerEntries, maxLayerBytes>>20)
			}
			l.Entries = append(l.Entries, entry)
		}
	}
}

// layerEntry checks the form of what the guest says.
func layerEntry(m *agentpb.LayerEntry) (LayerEntry, error) {
	p, target := string(m.GetPath()), string(m.GetTarget())
	bad := len(p) > maxTargetBytes || len(target) > maxTargetBytes || m.GetSize() < 0 || strings.ContainsRune(p+target, 0)
	for name := range strings.SplitSeq(p, "/") {
		bad = bad || name == "" || name == "." || name == ".." || len(name) > maxNameBytes
	}
	if bad || !filepath.IsLocal(p) {
		return LayerEntry{}, fmt.Errorf("%w: a changed file named %q", ErrProtocol, guestText(p))
	}
	return LayerEntry{Path: p, Mode: fileMode(m.GetMode()), Size: m.GetSize(), Target: target, Whiteout: m.GetWhiteout(), Opaque: m.GetOpaque()}, nil
}

// OpenChanged reads a regular file of the layer of the directory at path. The
// reader must be closed.
func (c *Client) OpenChanged(ctx context.Context, path, name string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.dirs.ReadChanged(ctx, &agentpb.ReadChangedRequest{Path: path, Name: []byte(name)})
	if err != nil {
		cancel()
		return nil, c.Files().fileError(ctx, err)
	}
	return &byteStream{cancel: cancel, next: func() ([]byte, error) {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return m.GetData(), c.Files().fileError(ctx, err)
	}}, nil
}

// layerProxy passes on calls about a guest's changes. Only the process that owns the machine
// attaches directories.
type layerProxy struct {
	agentpb.UnimplementedDirectoriesServer
	files filesProxy
}

var _ agentpb.DirectoriesServer = (*layerProxy)(nil)

// Attach implements agentpb.DirectoriesServer: it is refused.
func (p *layerProxy) Attach(*agentpb.AttachRequest, agentpb.Directories_AttachServer) error {
	return status.Error(codes.PermissionDenied, "directories are attached by the sandbox's supervisor")
}

// Changes implements agentpb.DirectoriesServer.
func (p *layerProxy) Changes(r *agentpb.ChangesRequest, down agentpb.Directories_ChangesServer) error {
	return fromGuest(&p.files, r, down, p.files.c.dirs.Changes)
}

// ReadChanged implements agentpb.DirectoriesServer.
func (p *layerProxy) ReadChanged(r *agentpb.ReadChangedRequest, down agentpb.Directories_ReadChangedServer) error {
	return fromGuest(&p.files, r, down, p.files.c.dirs.ReadChanged)
}
