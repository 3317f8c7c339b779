package agentclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/transfer"
)

// TransferFile is the host's end of a guest's transfer disk: the file.
type TransferFile interface {
	io.ReaderAt
	io.WriterAt
	// Reserve makes sure that the machine has room for a part of it.
	Reserve(off, n int64) error
}

// TransferDisk sends archives by a transfer disk.
type TransferDisk struct {
	file TransferFile
	free [2]chan int // lanes that no call uses
}

// NewTransferDisk makes one. All who serve a guest's clients use the same.
func NewTransferDisk(file TransferFile) *TransferDisk {
	t := &TransferDisk{file: file}
	for d := range t.free {
		t.free[d] = make(chan int, transfer.Lanes)
		for lane := range transfer.Lanes {
			t.free[d] <- lane
		}
	}
	return t
}

// lane is a call's part of the disk.
type lane struct {
	file      TransferFile
	direction transfer.Direction
	number    int
	next      int // piece
}

// use takes a lane, if there is one and room for it; done gives it back. The guest's end waits for a call that it still answers.
func (t *TransferDisk) use(d transfer.Direction) (l *lane, done func()) {
	if t == nil {
		return nil, nil
	}
	select {
	case n := <-t.free[d]:
		if t.file.Reserve(transfer.Offset(d, n, 0), transfer.Slots*transfer.PieceBytes) != nil {
			t.free[d] <- n
			return nil, nil
		}
		return &lane{file: t.file, direction: d, number: n}, func() { t.free[d] <- n }
	default:
		return nil, nil
	}
}

// diskError is an error of the host's file, which is not the guest's.
type diskError struct{ error }

// GRPCStatus tells the client.
func (e diskError) GRPCStatus() *status.Status {
	return status.New(codes.Aborted, "the transfer disk, on this machine: "+e.Error())
}

func (l *lane) move(call func([]byte, int64) (int, error), b []byte) error {
	if _, err := call(b, transfer.Offset(l.direction, l.number, l.next)); err != nil {
		return diskError{err}
	}
	l.next++
	return nil
}

// packByDisk passes on an archive of the guest's.
func (p *filesProxy) packByDisk(l *lane, r *agentpb.PackRequest, down grpc.ServerStreamingServer[agentpb.PackResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := p.c.files.PackByDisk(ctx)
	if err == nil {
		err = up.Send(&agentpb.PackByDiskRequest{Request: &agentpb.PackByDiskRequest_Start{Start: &agentpb.PackByDiskStart{Pack: r, Lane: uint32(l.number)}}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return p.fileStatus(ctx, err)
	}
	piece := make([]byte, transfer.PieceBytes)
	for {
		m, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.fileStatus(ctx, err)
		}
		if m.GetReport() != nil {
			if err := down.Send(&agentpb.PackResponse{Report: m.GetReport()}); err != nil {
				return err
			}
			continue
		}
		n := m.GetWritten()
		if n == 0 || n > transfer.PieceBytes {
			return p.status(ctx, p.c.fail(fmt.Errorf("%w: a piece of %d bytes", ErrProtocol, n)))
		}
		if err := l.move(l.file.ReadAt, piece[:n]); err != nil {
			return err
		}
		read := &agentpb.PackByDiskRequest{Request: &agentpb.PackByDiskRequest_Read{Read: true}}
		if err := up.Send(read); err != nil && !errors.Is(err, io.EOF) { // whose error comes with Recv
			return p.fileStatus(ctx, err)
		}
		for rest := piece[:n]; len(rest) > 0; {
			part := rest[:min(len(rest), agentpb.ArchiveChunkBytes)]
			if err := down.Send(&agentpb.PackResponse{Data: part}); err != nil {
				return err
			}
			rest = rest[len(part):]
		}
	}
}

// unpackByDisk passes on an archive to the guest.
func (p *filesProxy) unpackByDisk(l *lane, down grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	first, err := down.Recv()
	if err != nil {
		return err
	}
	up, err := p.c.files.UnpackByDisk(ctx)
	if err == nil {
		start := &agentpb.UnpackByDiskStart{Unpack: first.GetStart(), Lane: uint32(l.number)}
		err = up.Send(&agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Start{Start: start}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return p.fileStatus(ctx, err)
	}
	u := unpacking{lane: l, up: up, slot: make([]byte, transfer.PieceBytes)}
	pieces := bufio.NewWriterSize(&u, transfer.ToGuestBytes)
	for err == nil {
		var m *agentpb.UnpackRequest
		if m, err = down.Recv(); errors.Is(err, io.EOF) {
			if err = pieces.Flush(); err == nil { // else the guest would take what is there for all
				err = up.CloseSend()
			}
			break
		}
		if err != nil {
			return err // cut off: the guest must not commit what has come
		}
		_, err = pieces.Write(m.GetData())
	}
	if errors.Is(err, io.EOF) { // of Send, or of one that wants no more: the guest's answer says why
		err = nil
	}
	for err == nil && u.report == nil {
		err = u.answer()
	}
	switch {
	case errors.As(err, &diskError{}):
		return err
	case errors.Is(err, ErrProtocol):
		return p.status(ctx, p.c.fail(err))
	case err != nil:
		return p.fileStatus(ctx, err)
	}
	return down.SendAndClose(u.report)
}

// unpacking is an archive on its way to the guest.
type unpacking struct {
	*lane
	up     grpc.BidiStreamingClient[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]
	ready  bool // the lane is this call's in the guest, too
	read   int  // pieces, by the guest
	slot   []byte
	report *agentpb.TreeReport
}

// Write sends pieces: a message of a client's may be longer than one.
func (u *unpacking) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+transfer.ToGuestBytes)]
		err = u.send(part)
		n += len(part)
	}
	return n, err
}

func (u *unpacking) send(piece []byte) error {
	for !u.ready || u.next-u.read >= transfer.Slots {
		if err := u.answer(); err != nil {
			return err
		}
		if u.report != nil {
			return io.EOF // it has not read all, which is its own affair
		}
	}
	size := copy(u.slot, piece)
	if err := u.move(u.file.WriteAt, transfer.Mark(u.slot, size, u.next)); err != nil {
		return err
	}
	return u.up.Send(&agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Written{Written: uint32(size)}})
}

// answer takes the guest's next message.
func (u *unpacking) answer() error {
	m, err := u.up.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: an extraction without a report", ErrProtocol)
	case err != nil:
		return err
	}
	switch {
	case m.GetReady():
		u.ready = true
	case m.GetReport() != nil:
		u.report = m.GetReport()
	default:
		u.read++
	}
	return nil
}
