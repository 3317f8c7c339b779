//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/fileops"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/internal/tartree"
	"github.com/msb-project/msb/internal/transfer"
)

// transferDisk is the guest's end of the disk of internal/transfer. The kernel's cache would not know what the host writes.
type transferDisk struct {
	fd int
	// lanes hold a value while a call uses them. The call before may still be in a request when the next one begins.
	lanes [2][transfer.Lanes]chan struct{}
}

func openTransferDisk(ctx context.Context, d *agentpb.Disk) (*transferDisk, error) {
	path, err := system.Disk{Serial: d.GetSerial(), Device: d.GetDevice()}.Find(ctx)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the transfer disk: %w", err)
	}
	return newTransferDisk(fd), nil
}

func newTransferDisk(fd int) *transferDisk {
	t := &transferDisk{fd: fd}
	for d := range t.lanes {
		for n := range t.lanes[d] {
			t.lanes[d][n] = make(chan struct{}, 1)
		}
	}
	return t
}

// lane is one call's part of the disk.
type lane struct {
	disk      *transferDisk
	direction transfer.Direction
	number    int
	next      int    // piece
	piece     []byte // memory of one
	keep      func() bool

	mu   sync.Mutex // of each request
	left bool
}

// use takes a lane for a call, until the lane is closed or the call has ended. The call itself may hang for longer than
// that, in a file system that doesn't answer: it would keep the lane from all later calls.
func (d *transferDisk) use(ctx context.Context, direction transfer.Direction, number uint32) (*lane, error) {
	if d == nil || number >= transfer.Lanes {
		return nil, status.Errorf(codes.InvalidArgument, "no lane %d of a transfer disk", number)
	}
	select {
	case d.lanes[direction][number] <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	piece, err := unix.Mmap(-1, 0, transfer.PieceBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // which is aligned
	if err != nil {
		<-d.lanes[direction][number]
		return nil, fmt.Errorf("memory for the transfer disk: %w", err)
	}
	l := &lane{disk: d, direction: direction, number: int(number), piece: piece}
	l.keep = context.AfterFunc(ctx, l.leave)
	return l, nil
}

func (l *lane) close() {
	if l.keep() {
		l.leave()
	}
	_ = unix.Munmap(l.piece)
}

// leave gives the lane to the next call once no request of this one is under way.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = true
	<-l.disk.lanes[l.direction][l.number]
}

// move reads or writes the next piece, of the first n bytes of b.
func (l *lane) move(call func(fd int, b []byte, off int64) (int, error), b []byte, n int) error {
	whole := (n + transfer.BlockBytes - 1) / transfer.BlockBytes * transfer.BlockBytes
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left {
		return status.Error(codes.Canceled, "the call has ended")
	}
	for {
		moved, err := call(l.disk.fd, b[:whole], transfer.Offset(l.direction, l.number, l.next))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("the transfer disk: %w", err)
		case moved < n:
			return fmt.Errorf("the transfer disk: %w", io.ErrUnexpectedEOF)
		default:
			l.next++
			return nil
		}
	}
}

// wholePiece reports whether a piece can be read or written where a long file's content is, which spares a copy.
func wholePiece(b []byte) bool {
	return len(b) == transfer.PieceBytes && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%transfer.BlockBytes == 0
}

// packLane writes an archive to a lane.
type packLane struct {
	*lane
	stream grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]
	filled int
	read   int // pieces, by the host
}

// Write implements io.Writer.
func (p *packLane) Write(b []byte) (int, error) {
	if wholePiece(b) {
		if err := p.flush(); err != nil {
			return 0, err
		}
		if err := p.send(b); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	for rest := b; len(rest) > 0; {
		n := copy(p.piece[p.filled:], rest)
		p.filled, rest = p.filled+n, rest[n:]
		if p.filled == len(p.piece) {
			if err := p.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

func (p *packLane) flush() error {
	if p.filled == 0 {
		return nil
	}
	n := p.filled
	p.filled = 0
	return p.send(p.piece[:n])
}

// send sends a piece. Its memory is aligned, and long enough for its last block.
func (p *packLane) send(b []byte) error {
	for p.next-p.read >= transfer.Slots {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
		p.read++
	}
	if err := p.move(unix.Pwrite, b[:cap(b)], len(b)); err != nil {
		return err
	}
	return p.stream.Send(&agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Written{Written: uint32(len(b))}})
}

// PackByDisk implements agentpb.FilesServer.
func (s *fileServer) PackByDisk(stream grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	l, err := s.transfer.use(stream.Context(), transfer.ToHost, first.GetStart().GetLane())
	if err != nil {
		return fileStatus(err)
	}
	defer l.close()
	return s.packInto(stream.Context(), first.GetStart().GetPack(), &packLane{lane: l, stream: stream}, func(r *agentpb.TreeReport) error {
		return stream.Send(&agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Report{Report: r}})
	})
}

// unpackLane reads an archive from a lane.
type unpackLane struct {
	*lane
	stream grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]
	rest   []byte
}

// Read implements io.Reader.
func (u *unpackLane) Read(b []byte) (int, error) {
	for len(u.rest) == 0 {
		m, err := u.stream.Recv()
		if err != nil {
			return 0, err
		}
		if m.GetWritten() > transfer.ToGuestBytes {
			return 0, status.Errorf(codes.InvalidArgument, "a piece of %d bytes", m.GetWritten())
		}
		n, number := int(m.GetWritten()), u.next
		if err := u.move(unix.Pread, u.piece, transfer.MarkedBytes(n)); err != nil {
			return 0, err
		}
		if !transfer.Marked(u.piece, n, number) {
			return 0, status.Errorf(codes.Aborted, "piece %d is not on the transfer disk", number)
		}
		if err := u.stream.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Read{Read: true}}); err != nil {
			return 0, err
		}
		u.rest = u.piece[:n]
	}
	n := copy(b, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// UnpackByDisk implements agentpb.FilesServer.
func (s *fileServer) UnpackByDisk(stream grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start.GetUnpack() == nil {
		return status.Error(codes.InvalidArgument, "the first message of an extraction must be start")
	}
	l, err := s.transfer.use(stream.Context(), transfer.ToGuest, start.GetLane())
	if err != nil {
		return fileStatus(err)
	}
	defer l.close()
	if err := stream.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}}); err != nil {
		return err
	}
	return s.unpackFrom(stream.Context(), start.GetUnpack(), &unpackLane{lane: l, stream: stream}, func(r *agentpb.TreeReport) error {
		return stream.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Report{Report: r}})
	})
}

// archiveWriter is what an archive is sent by; flush comes at its end.
type archiveWriter interface {
	io.Writer
	flush() error
}

// packInto makes an archive.
func (s *fileServer) packInto(ctx context.Context, req *agentpb.PackRequest, out archiveWriter, send func(*agentpb.TreeReport) error) error {
	pack := func(w io.Writer) (tartree.Report, error) {
		return fileops.Pack(ctx, w, req.GetPath(), req.GetName(), req.GetFollow())
	}
	where := s.run
	if dir, err := outsideRoot(req); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	} else if dir != "" {
		where = s.bounded
		pack = func(w io.Writer) (tartree.Report, error) { return fileops.PackAll(ctx, w, dir) }
	}
	return where(func() error {
		report, err := pack(out)
		if err != nil && !errors.Is(err, tartree.ErrChanged) {
			return err
		}
		if err := errors.Join(out.flush(), err); err != nil {
			return err
		}
		return send(reportMessage(report))
	})
}

// unpackFrom extracts an archive.
func (s *fileServer) unpackFrom(ctx context.Context, start *agentpb.UnpackStart, in io.Reader, send func(*agentpb.TreeReport) error) error {
	return s.run(func() error {
		report, err := fileops.Unpack(ctx, start, in)
		if err != nil {
			return err
		}
		// What is behind the archive's end is read too: the sender waits for it.
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
		return send(reportMessage(report))
	})
}
