package agentclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/transfer"
)

// memoryDisk is a transfer disk that remembers which bytes were asked for.
type memoryDisk struct {
	mu    sync.Mutex
	bytes []byte
	read  []int64
	wrote []int64
	fail  error
	full  error
}

func (d *memoryDisk) Reserve(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off < 0 || off+n > int64(len(d.bytes)) {
		return io.ErrUnexpectedEOF
	}
	return d.full
}

func (d *memoryDisk) ReadAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read = append(d.read, off)
	return copy(b, d.bytes[off:]), d.fail
}

func (d *memoryDisk) WriteAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrote = append(d.wrote, off)
	return copy(d.bytes[off:], b), d.fail
}

// laneFiles is a guest whose calls by disk do what a test says.
type laneFiles struct {
	fakeFiles
	mu     sync.Mutex
	pack   func(grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error
	unpack func(grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error
	byPort func(grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error
}

func (f *laneFiles) Unpack(s grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) error {
	return f.byPort(s)
}

func (f *laneFiles) PackByDisk(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
	f.mu.Lock()
	pack := f.pack
	f.mu.Unlock()
	return pack(s)
}

func (f *laneFiles) UnpackByDisk(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
	f.mu.Lock()
	unpack := f.unpack
	f.mu.Unlock()
	return unpack(s)
}

// attachLanes is a supervisor's client, the supervisor's own client, and the disk.
func attachLanes(t testing.TB, f *laneFiles) (*Client, *Client, *memoryDisk) {
	t.Helper()
	guest, disk := dialFiles(t, f), &memoryDisk{bytes: make([]byte, transfer.DiskBytes)}
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, lis, guest, Services{Transfer: NewTransferDisk(disk)}) }()
	t.Cleanup(func() { cancel(); <-served })
	conn, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Attach(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, guest, disk
}

func packed(n uint32) *agentpb.PackByDiskResponse {
	return &agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Written{Written: n}}
}

func packEnd() *agentpb.PackByDiskResponse {
	return &agentpb.PackByDiskResponse{Response: &agentpb.PackByDiskResponse_Report{Report: &agentpb.TreeReport{Entries: 1}}}
}

// TestI12_OddPiecesEndTheSession: the host reads no byte for a piece that can't be, and none beyond a lane.
func TestI12_OddPiecesEndTheSession(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		sent []*agentpb.PackByDiskResponse
		ends bool // the whole session
	}{
		"empty":          {[]*agentpb.PackByDiskResponse{packed(0)}, true},
		"long":           {[]*agentpb.PackByDiskResponse{packed(transfer.PieceBytes + 1)}, true},
		"longest":        {[]*agentpb.PackByDiskResponse{packed(1<<32 - 1)}, true},
		"nothing":        {[]*agentpb.PackByDiskResponse{{}}, true},
		"no report":      {[]*agentpb.PackByDiskResponse{packed(512)}, false},
		"behind the end": {[]*agentpb.PackByDiskResponse{packEnd(), packed(512)}, false},
	} {
		c, guest, disk := attachLanes(t, &laneFiles{pack: func(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
			for _, m := range tt.sent {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}})
		a, err := c.Files().Pack(t.Context(), "/x", "", false)
		if err == nil {
			_, err = io.Copy(io.Discard, a)
			a.Close()
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", what, err)
		}
		if tt.ends && !errors.Is(guest.Err(), ErrProtocol) {
			t.Errorf("%s: the session goes on: %v", what, guest.Err())
		}
		if disk.mu.Lock(); tt.ends && len(disk.read) > 0 {
			t.Errorf("%s: read at %v", what, disk.read)
		}
		disk.mu.Unlock()
	}
}

// TestI11_PiecesComeFromTheirLaneAlone: a guest that sends pieces without end, and waits for nothing, is read round and
// round in one lane of its half.
func TestI11_PiecesComeFromTheirLaneAlone(t *testing.T) {
	t.Parallel()
	const pieces = 3*transfer.Slots + 1
	c, _, disk := attachLanes(t, &laneFiles{pack: func(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
		for range pieces {
			if err := s.Send(packed(transfer.PieceBytes)); err != nil {
				return err
			}
		}
		return s.Send(packEnd())
	}})
	a, err := c.Files().Pack(t.Context(), "/x", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n, err := io.Copy(io.Discard, a); err != nil || n != pieces*transfer.PieceBytes {
		t.Errorf("%d bytes, %v", n, err)
	}
	first := transfer.Offset(transfer.ToHost, 0, 0)
	disk.mu.Lock()
	defer disk.mu.Unlock()
	for i, at := range disk.read {
		if at != transfer.Offset(transfer.ToHost, 0, i) || at < first || at >= first+transfer.Slots*transfer.PieceBytes {
			t.Errorf("piece %d was read at %d", i, at)
		}
	}
}

// TestI11_UnreadPiecesStopTheSender: a guest that is not ready gets nothing, one that reads nothing a lane full, and for each
// piece that it has read one more. It may end the call before it has read all, as it does with an archive's padding.
func TestI11_UnreadPiecesStopTheSender(t *testing.T) {
	t.Parallel()
	early := make(chan int, 1)
	var disk *memoryDisk
	c, _, d := attachLanes(t, &laneFiles{unpack: func(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
		time.Sleep(200 * time.Millisecond) // for one that writes while another call may read
		disk.mu.Lock()
		early <- len(disk.wrote)
		disk.mu.Unlock()
		if err := s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}}); err != nil {
			return err
		}
		for range 1 + transfer.Slots { // the start too
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		if err := s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Read{Read: true}}); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond) // for a sender that doesn't wait
		return s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Report{Report: &agentpb.TreeReport{Entries: 3}}})
	}})
	disk = d
	sent := bytes.NewReader(bytes.Repeat([]byte("0123456789abcdef"), 10*transfer.Slots*transfer.PieceBytes/16))
	report, err := c.Files().Unpack(t.Context(), "/x", sent, nil)
	if err != nil || report.Entries != 3 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := <-early; n > 0 {
		t.Errorf("%d pieces were written before the guest was ready", n)
	}
	disk.mu.Lock()
	defer disk.mu.Unlock()
	var want []int64
	for n := range transfer.Slots + 1 {
		want = append(want, transfer.Offset(transfer.ToGuest, 0, n))
	}
	if !slices.Equal(disk.wrote, want) {
		t.Errorf("pieces were written at %v, want %v", disk.wrote, want)
	}
	if beyond := transfer.Offset(transfer.ToGuest, 1, 0); !bytes.Equal(disk.bytes[beyond:], make([]byte, transfer.DiskBytes-beyond)) {
		t.Error("something was written beyond the lane")
	}
}

// TestErrorsOfCallsByDiskAreTheGuests: those that come before the archive's end, and of the disk itself.
func TestErrorsOfCallsByDiskAreTheGuests(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.InvalidArgument, "no such place")
	f := &laneFiles{
		pack: func(grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
			return refused
		},
		unpack: func(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			return refused
		},
	}
	c, guest, disk := attachLanes(t, f)
	long := bytes.NewReader(make([]byte, 3*transfer.Slots*transfer.PieceBytes))
	for range 2*transfer.Lanes + 1 { // each gives its lane back
		if _, err := c.Files().Pack(t.Context(), "/x", "", false); !errors.Is(err, ErrRefused) {
			t.Errorf("pack: %v", err)
		}
		if _, err := c.Files().Unpack(t.Context(), "/x", long, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("unpack: %v", err)
		}
	}
	disk.mu.Lock()
	disk.fail = errors.New("disk is gone")
	disk.mu.Unlock()
	f.mu.Lock()
	f.pack = func(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
		return s.Send(packed(512))
	}
	f.unpack = func(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
		if err := s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}}); err != nil {
			return err
		}
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	f.mu.Unlock()
	a, err := c.Files().Pack(t.Context(), "/x", "", false)
	if err == nil {
		_, err = io.Copy(io.Discard, a)
		a.Close()
	}
	if !errors.Is(err, ErrRefused) {
		t.Errorf("an archive from a disk that is gone: %v", err)
	}
	if _, err := c.Files().Unpack(t.Context(), "/x", bytes.NewReader(make([]byte, 512)), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("an archive to a disk that is gone: %v", err)
	}
	if err := errors.Join(guest.Err(), c.Err()); err != nil {
		t.Errorf("the session is over: %v", err)
	}
	f.mu.Lock()
	f.unpack = func(grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
		return nil
	}
	f.mu.Unlock()
	if _, err := c.Files().Unpack(t.Context(), "/x", bytes.NewReader(nil), nil); err == nil || !errors.Is(guest.Err(), ErrProtocol) {
		t.Errorf("an extraction without a report: %v, and the session: %v", err, guest.Err())
	}
}

// cutOff is a client's stream that breaks after what it sent.
type cutOff struct {
	grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]
	ctx  context.Context
	sent []*agentpb.UnpackRequest
	err  error
}

func (c *cutOff) Context() context.Context { return c.ctx }

func (c *cutOff) Recv() (*agentpb.UnpackRequest, error) {
	if len(c.sent) == 0 {
		return nil, c.err
	}
	m := c.sent[0]
	c.sent = c.sent[1:]
	return m, nil
}

// TestI13_BrokenStreamsAreNotClosedToTheGuest: it takes an archive whose stream is closed for complete, and commits it.
func TestI13_BrokenStreamsAreNotClosedToTheGuest(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	f := &laneFiles{
		unpack: func(s grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]) error {
			err := s.Send(&agentpb.UnpackByDiskResponse{Response: &agentpb.UnpackByDiskResponse_Ready{Ready: true}})
			for err == nil {
				_, err = s.Recv()
			}
			ended <- err
			return err
		},
		byPort: func(s grpc.ClientStreamingServer[agentpb.UnpackRequest, agentpb.TreeReport]) (err error) {
			for err == nil {
				_, err = s.Recv()
			}
			ended <- err
			return err
		},
	}
	broken := status.Error(codes.Canceled, "the client is gone")
	for way, disk := range map[string]*TransferDisk{"disk": NewTransferDisk(&memoryDisk{bytes: make([]byte, transfer.DiskBytes)}), "port": nil} {
		p := &filesProxy{proxy: proxy{c: dialFiles(t, f)}, transfer: disk}
		err := p.Unpack(&cutOff{ctx: t.Context(), err: broken, sent: []*agentpb.UnpackRequest{
			{Request: &agentpb.UnpackRequest_Start{Start: &agentpb.UnpackStart{Path: "/x"}}},
			{Request: &agentpb.UnpackRequest_Data{Data: make([]byte, transfer.PieceBytes+512)}},
		}})
		if !errors.Is(err, broken) {
			t.Errorf("%s: the call ends with %v", way, err)
		}
		if err := <-ended; errors.Is(err, io.EOF) || status.Code(err) != codes.Canceled {
			t.Errorf("%s: the guest's stream ends with %v", way, err)
		}
	}
}

// TestFullDisksLeaveThePort: who copies from a machine whose disk is full may do so because it is. Once there is room, however
// often there was none, calls go by the disk again.
func TestFullDisksLeaveThePort(t *testing.T) {
	t.Parallel()
	f := &laneFiles{fakeFiles: fakeFiles{parts: []*agentpb.PackResponse{{Data: []byte("by the port")}, {Report: &agentpb.TreeReport{}}}}}
	f.pack = func(s grpc.BidiStreamingServer[agentpb.PackByDiskRequest, agentpb.PackByDiskResponse]) error {
		return errors.Join(s.Send(packed(512)), s.Send(packEnd()))
	}
	c, _, disk := attachLanes(t, f)
	full := errors.New("no space left")
	for _, full := range append(slices.Repeat([]error{full}, transfer.Lanes), nil) {
		disk.mu.Lock()
		disk.full = full
		disk.mu.Unlock()
		a, err := c.Files().Pack(t.Context(), "/x", "", false)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a)
		if a.Close(); err != nil || (string(b) == "by the port") != (full != nil) {
			t.Errorf("%v: %q, %v", full, b, err)
		}
	}
}

// TestClientsCantUseLanesThemselves: a lane is the supervisor's to give.
func TestClientsCantUseLanesThemselves(t *testing.T) {
	t.Parallel()
	c, _, _ := attachLanes(t, &laneFiles{})
	pack, err := c.files.PackByDisk(t.Context())
	if err == nil {
		_, err = pack.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("pack: %v", err)
	}
	unpack, err := c.files.UnpackByDisk(t.Context())
	if err == nil {
		_, err = unpack.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("unpack: %v", err)
	}
}
