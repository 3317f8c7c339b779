package agentclient

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/transfer"
)

// filesProxy passes on calls about the guest's files. The client at the other end checks the
// guest's messages, as Client does here.
type filesProxy struct {
	agentpb.UnimplementedFilesServer
	proxy
	transfer *TransferDisk // nil for none
}

var _ agentpb.FilesServer = (*filesProxy)(nil)

// fileStatus passes the guest's errno on, with its words made safe.
func (p *filesProxy) fileStatus(ctx context.Context, err error) error {
	refused := guestFileError(err)
	if err == nil || refused == nil {
		return p.status(ctx, err)
	}
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if f, ok := d.(*agentpb.FileError); ok {
			safe := &agentpb.FileError{Errno: f.GetErrno(), Op: refused.Op, Path: refused.Path}
			if with, err := status.New(codes.InvalidArgument, refused.Error()).WithDetails(safe); err == nil {
				return with.Err()
			}
		}
	}
	return p.status(ctx, err)
}

// Stat implements agentpb.FilesServer.
func (p *filesProxy) Stat(ctx context.Context, r *agentpb.StatRequest) (*agentpb.FileInfo, error) {
	m, err := p.c.files.Stat(ctx, r)
	return m, p.fileStatus(ctx, err)
}

// Change implements agentpb.FilesServer.
func (p *filesProxy) Change(ctx context.Context, r *agentpb.ChangeRequest) (*agentpb.ChangeResponse, error) {
	m, err := p.c.files.Change(ctx, r)
	return m, p.fileStatus(ctx, err)
}

// fromGuest passes one call's messages on, one at a time.
func fromGuest[Req, Resp any](p *filesProxy, req *Req, down grpc.ServerStreamingServer[Resp],
	call func(context.Context, *Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Resp], error),
) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := call(ctx, req)
	if err != nil {
		return p.fileStatus(ctx, err)
	}
	for {
		m, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.fileStatus(ctx, err)
		}
		if err := down.Send(m); err != nil {
			return err
		}
	}
}

// toGuest passes a stream to the guest. It half-closes the stream only if the client did: the
// guest must not commit the data of a client that was cut off.
func toGuest[Req, Resp any](p *filesProxy, down grpc.ClientStreamingServer[Req, Resp],
	call func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error),
) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := call(ctx)
	if err != nil {
		return p.fileStatus(ctx, err)
	}
	for {
		m, err := down.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if up.Send(m) != nil {
			break // the guest has answered already
		}
	}
	resp, err := up.CloseAndRecv()
	if err != nil {
		return p.fileStatus(ctx, err)
	}
	return down.SendAndClose(resp)
}

// List implements agentpb.FilesServer.
func (p *filesProxy) List(r *agentpb.ListRequest, down grpc.ServerStreamingServer[agentpb.ListResponse]) error {
	return fromGuest(p, r, down, p.c.files.List)
}

// Read implements agentpb.FilesServer.
func (p *filesProxy) Read(r *agentpb.ReadRequest, down grpc.ServerStreamingServer[agentpb.ReadResponse]) error {
	return fromGuest(p, r, down, p.c.files.Read)
}

// Watch implements agentpb.FilesServer.
func (p *filesProxy) Watch(r *agentpb.WatchRequest, down grpc.ServerStreamingServer[agentpb.WatchResponse]) error {
	return fromGuest(p, r, down, p.c.files.Watch)
}

// Pack implements agentpb.FilesServer.
func (p *filesProxy) Pack(r *agentpb.PackRequest, down grpc.ServerStreamingServer[agentpb.PackResponse]) error {
	if l, done := p.transfer.use(transfer.ToHost); l != nil {
		defer done()
		return p.packByDisk(l, r, down)
	}
	return fromGuest(p, r, down, p.c.files.Pack)
}

// Write implements agentpb.FilesServer.
func (p *filesProxy) Write(down grpc.ClientStreamingServer[agentpb.WriteRequest, agentpb.FileInfo]) error {
	return toGuest(p, down, p.c.files.Write)
}

// Unpack implements agentpb.FilesServer.
func (p *filesProxy) Unpack(down grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error {
	if l, done := p.transfer.use(transfer.ToGuest); l != nil {
		defer done()
		return p.unpackByDisk(l, down)
	}
	return toGuest(p, down, func(ctx context.Context, o ...grpc.CallOption) (grpc.ClientStreamingClient[agentpb.UnpackRequest, agentpb.TreeReport], error) {
		up, err := p.c.files.Unpack(ctx, o...)
		return inChunks{up}, err
	})
}

// inChunks sends an archive to the guest in messages of the guest's size.
type inChunks struct {
	grpc.ClientStreamingClient[agentpb.UnpackRequest, agentpb.TreeReport]
}

// Send implements grpc.ClientStreamingClient.
func (c inChunks) Send(m *agentpb.UnpackRequest) error {
	rest := m.GetData()
	for ; len(rest) > agentpb.FileChunkBytes; rest = rest[agentpb.FileChunkBytes:] {
		part := rest[:agentpb.FileChunkBytes]
		if err := c.ClientStreamingClient.Send(&agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Data{Data: part}}); err != nil {
			return err
		}
	}
	if m.GetStart() == nil {
		m = &agentpb.UnpackRequest{Request: &agentpb.UnpackRequest_Data{Data: rest}}
	}
	return c.ClientStreamingClient.Send(m)
}
