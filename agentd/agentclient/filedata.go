package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/msb-project/msb/agentd/agentpb"
)

// maxReportNames bounds the names in a TreeReport, as in the guest's own.
const maxReportNames = 64

// TreeReport says what an archive held.
type TreeReport struct {
	Entries, Bytes int64
	// Skipped names devices, FIFOs and sockets that were left out: at most 64.
	// SkippedMore counts further ones.
	Skipped     []string
	SkippedMore int64
}

func treeReport(m *agentpb.TreeReport) TreeReport {
	r := TreeReport{Entries: m.GetEntries(), Bytes: m.GetBytes(), SkippedMore: m.GetSkippedMore()}
	for _, name := range m.GetSkipped()[:min(len(m.GetSkipped()), maxReportNames)] {
		r.Skipped = append(r.Skipped, guestText(name))
	}
	return r
}

// byteStream reads the data of a call's messages.
type byteStream struct {
	next   func() ([]byte, error)
	rest   []byte
	err    error
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (s *byteStream) Read(b []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		s.rest, s.err = s.next()
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the call.
func (s *byteStream) Close() error {
	s.cancel()
	return nil
}

// Open reads a regular file from offset on, at most length bytes; length 0
// reads to its end. The reader must be closed.
func (f *Files) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := f.api.Read(ctx, &agentpb.ReadRequest{Path: name, Offset: offset, Length: length})
	if err != nil {
		cancel()
		return nil, f.fileError(ctx, err)
	}
	s := &byteStream{cancel: cancel, next: func() ([]byte, error) {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return m.GetData(), f.fileError(ctx, err)
	}}
	// The first message tells a file that can't be read.
	if s.rest, s.err = s.next(); s.err != nil && !errors.Is(s.err, io.EOF) {
		cancel()
		return nil, s.err
	}
	return s, nil
}

// WriteOptions says how a file is written.
type WriteOptions struct {
	// Mode of a new file; 0644 if it is 0. A file that exists keeps its own.
	Mode fs.FileMode
	// Owner is that of the file that is replaced, or root, if it is nil.
	Owner *Owner
	// Append writes after the end. Without it, the file is replaced in one step once all bytes
	// have arrived, and otherwise stays as it was.
	Append bool
	// Exclusive fails with fs.ErrExist where a file exists.
	Exclusive bool
}

// WriteFile stores what r gives.
func (f *Files) WriteFile(ctx context.Context, name string, r io.Reader, o WriteOptions) (FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.api.Write(ctx)
	if err != nil {
		return FileInfo{}, f.fileError(ctx, err)
	}
	start := &agentpb.WriteStart{Path: name, Mode: agentpb.LinuxPermissions(o.Mode), Owner: o.Owner.message(), Append: o.Append, Exclusive: o.Exclusive}
	err = stream.Send(&agentpb.WriteRequest{Request: &agentpb.WriteRequest_Start{Start: start}})
	if err == nil {
		err = sendAll(r, agentpb.FileChunkBytes, func(b []byte) error {
			return stream.Send(&agentpb.WriteRequest{Request: &agentpb.WriteRequest_Data{Data: b}})
		})
	}
	var source sourceError
	if errors.As(err, &source) {
		return FileInfo{}, source.error // the deferred cancel leaves the file as it was
	}
	if ctx.Err() != nil { // the end of the call may overtake its cancellation, and commits
		return FileInfo{}, f.fileError(ctx, ctx.Err())
	}
	m, err := stream.CloseAndRecv()
	if err != nil {
		return FileInfo{}, f.fileError(ctx, err)
	}
	return f.checked(m)
}

// sourceError is an error of what is sent, not of the call.
type sourceError struct{ error }

// sendAll sends r in messages of chunk bytes. A failed Send is io.EOF: the
// call's own error comes with its answer.
func sendAll(r io.Reader, chunk int, send func([]byte) error) error {
	buf := make([]byte, chunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return sourceError{err}
		}
	}
}

// Archive is a tar archive that the guest makes while it is read.
type Archive struct {
	byteStream
	report *TreeReport
}

// Report says what the archive held. It is complete once Read gave io.EOF.
func (a *Archive) Report() TreeReport {
	if a.report == nil {
		return TreeReport{}
	}
	return *a.report
}

// Pack makes an archive of the file or directory at name. Its first entry is called as; empty
// takes the base of name. With follow, a link at name is what it leads to. The archive must be
// closed. Don't trust its contents: the guest wrote it.
func (f *Files) Pack(ctx context.Context, name, as string, follow bool) (*Archive, error) {
	return f.pack(ctx, &agentpb.PackRequest{Path: name, Name: as, Follow: follow})
}

// PackCache returns an archive of what was written to the cache of that key, as Pack does. The
// error is fs.ErrNotExist if nothing was written.
func (f *Files) PackCache(ctx context.Context, key string) (*Archive, error) {
	return f.pack(ctx, &agentpb.PackRequest{Cache: key})
}

// PackRoot returns an archive of the guest's root, without what is mounted in it.
func (f *Files) PackRoot(ctx context.Context) (*Archive, error) {
	return f.pack(ctx, &agentpb.PackRequest{Root: true})
}

func (f *Files) pack(ctx context.Context, req *agentpb.PackRequest) (*Archive, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := f.api.Pack(ctx, req)
	if err != nil {
		cancel()
		return nil, f.fileError(ctx, err)
	}
	a := &Archive{}
	a.cancel = cancel
	a.next = func() ([]byte, error) {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && a.report == nil:
			return nil, f.c.fail(fmt.Errorf("%w: an archive without its end", ErrProtocol))
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil:
			return nil, f.fileError(ctx, err)
		case a.report != nil:
			return nil, f.c.fail(fmt.Errorf("%w: an archive goes on behind its end", ErrProtocol))
		case m.GetReport() != nil:
			r := treeReport(m.GetReport())
			a.report = &r
		}
		return m.GetData(), nil
	}
	if a.rest, a.err = a.next(); a.err != nil && !errors.Is(a.err, io.EOF) {
		cancel()
		return nil, a.err
	}
	return a, nil
}

// Unpack extracts the archive r into an existing directory. Every file gets owner; nil keeps
// the archive's owners.
func (f *Files) Unpack(ctx context.Context, dir string, r io.Reader, owner *Owner) (TreeReport, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.api.Unpack(ctx)
	if err != nil {
		return TreeReport{}, f.fileError(ctx, err)
	}
	start := &agentpb.UnpackStart{Path: dir, Owner: owner.message()}
	err = stream.Send(&agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Start{Start: start}})
	if err == nil {
		err = sendAll(r, f.c.archiveChunk, func(b []byte) error {
			return stream.Send(&agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Data{Data: b}})
		})
	}
	var source sourceError
	if errors.As(err, &source) {
		return TreeReport{}, source.error
	}
	if ctx.Err() != nil { // as in WriteFile
		return TreeReport{}, f.fileError(ctx, ctx.Err())
	}
	m, err := stream.CloseAndRecv()
	if err != nil {
		return TreeReport{}, f.fileError(ctx, err)
	}
	return treeReport(m), nil
}
