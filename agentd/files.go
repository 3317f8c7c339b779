//go:build linux

package agentd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/fileops"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
	"github.com/msb-project/msb/internal/tartree"
)

// maxFileCalls bounds the file operations that run at once: each takes a thread
// and up to StreamWindowBytes of what it sends.
const maxFileCalls = 64

// fileServer answers for the files of the workload's root.
type fileServer struct {
	agentpb.UnimplementedFilesServer
	root     *workload.Root
	slots    chan struct{}
	transfer *transferDisk // nil for none
}

var _ agentpb.FilesServer = (*fileServer)(nil)

func newFileServer(root *workload.Root) *fileServer {
	return &fileServer{root: root, slots: make(chan struct{}, maxFileCalls)}
}

// run runs f in the workload's root and gives its error a status.
func (s *fileServer) run(f func() error) error {
	return s.bounded(func() error { return s.root.Run(f) })
}

// bounded runs f as one of the file operations and gives its error a status.
func (s *fileServer) bounded(f func() error) error {
	select {
	case s.slots <- struct{}{}:
	default:
		return status.Errorf(codes.ResourceExhausted, "%d file operations run already; wait for one to end", maxFileCalls)
	}
	defer func() { <-s.slots }()
	return fileStatus(f())
}

// fileStatus passes the kernel's number on, so that the host's errors.Is finds
// fs.ErrNotExist and its like.
func fileStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err // the stream's own
	}
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return status.FromContextError(ended).Err()
		}
	}
	st := status.New(codes.InvalidArgument, shown(err.Error()))
	var number syscall.Errno
	if !errors.As(err, &number) {
		return st.Err()
	}
	detail := &agentpb.FileError{Errno: uint32(number)}
	var p *fs.PathError
	var l *os.LinkError
	if errors.As(err, &p) {
		detail.Op, detail.Path = p.Op, shown(p.Path)
	} else if errors.As(err, &l) {
		detail.Op, detail.Path = l.Op, shown(l.New)
	}
	with, err := st.WithDetails(detail)
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

// Stat implements agentpb.FilesServer.
func (s *fileServer) Stat(_ context.Context, req *agentpb.StatRequest) (info *agentpb.FileInfo, err error) {
	return info, s.run(func() error {
		info, err = fileops.Stat(req.GetPath(), req.GetFollow())
		return err
	})
}

// List implements agentpb.FilesServer.
func (s *fileServer) List(req *agentpb.ListRequest, stream grpc.ServerStreamingServer[agentpb.ListResponse]) error {
	return s.run(func() error {
		return fileops.List(req.GetPath(), func(entries []*agentpb.FileInfo) error {
			return stream.Send(&agentpb.ListResponse{Entries: entries})
		})
	})
}

// Read implements agentpb.FilesServer.
func (s *fileServer) Read(req *agentpb.ReadRequest, stream grpc.ServerStreamingServer[agentpb.ReadResponse]) error {
	return s.run(func() error {
		return fileops.Read(req.GetPath(), req.GetOffset(), req.GetLength(), func(b []byte) error {
			return stream.Send(&agentpb.ReadResponse{Data: b})
		})
	})
}

// Write implements agentpb.FilesServer.
func (s *fileServer) Write(stream grpc.ClientStreamingServer[agentpb.WriteRequest, agentpb.FileInfo]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetStart() == nil {
		return status.Error(codes.InvalidArgument, "the first message of a write must be start")
	}
	return s.run(func() error {
		info, err := fileops.Write(first.GetStart(), func() ([]byte, error) {
			req, err := stream.Recv()
			return req.GetData(), err
		})
		if err != nil {
			return err
		}
		return stream.SendAndClose(info)
	})
}

// Change implements agentpb.FilesServer.
func (s *fileServer) Change(_ context.Context, req *agentpb.ChangeRequest) (*agentpb.ChangeResponse, error) {
	return &agentpb.ChangeResponse{}, s.run(func() error { return fileops.Change(req) })
}

// Watch implements agentpb.FilesServer.
func (s *fileServer) Watch(req *agentpb.WatchRequest, stream grpc.ServerStreamingServer[agentpb.WatchResponse]) error {
	return s.run(func() error {
		return fileops.Watch(stream.Context(), req.GetPath(), req.GetRecursive(), stream.Send)
	})
}

// Pack implements agentpb.FilesServer.
func (s *fileServer) Pack(req *agentpb.PackRequest, stream grpc.ServerStreamingServer[agentpb.PackResponse]) error {
	out := &chunkWriter{send: func(b []byte) error { return stream.Send(&agentpb.PackResponse{Data: b}) }}
	return s.packInto(stream.Context(), req, out, func(r *agentpb.TreeReport) error {
		return stream.Send(&agentpb.PackResponse{Report: r})
	})
}

// outsideRoot is the directory of agentd's own to pack, "" for one of the workload's.
func outsideRoot(req *agentpb.PackRequest) (string, error) {
	if req.GetRoot() {
		return system.RootDir, nil
	}
	if req.GetCache() == "" {
		return "", nil
	}
	layer, err := system.CacheLayer(req.GetCache())
	return layer.Data(), err
}

// Unpack implements agentpb.FilesServer.
func (s *fileServer) Unpack(stream grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetStart() == nil {
		return status.Error(codes.InvalidArgument, "the first message of an extraction must be start")
	}
	in := &chunkReader{next: func() ([]byte, error) {
		req, err := stream.Recv()
		return req.GetData(), err
	}}
	return s.unpackFrom(stream.Context(), first.GetStart(), in, stream.SendAndClose)
}

func reportMessage(r tartree.Report) *agentpb.TreeReport {
	m := &agentpb.TreeReport{Entries: r.Entries, Bytes: r.Bytes, SkippedMore: r.SkippedMore}
	for _, name := range r.Skipped {
		m.Skipped = append(m.Skipped, shown(name))
	}
	return m
}

// shown is a name for sentences: a string of a message has to be UTF-8, which names of files need not be.
func shown(name string) string { return strings.ToValidUTF8(name, "\ufffd") }
