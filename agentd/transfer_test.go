//go:build linux

package agentd

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/transfer"
)

// diskSession is a guest with a transfer disk, and its files through a proxy.
type diskSession struct {
	*agentclient.Files
	guest *session
	disk  *os.File
}

// byDisk makes one. The disk is a file, which the guest reads and writes past the kernel's cache, as it does a device.
func byDisk(t *testing.T) *diskSession {
	t.Helper()
	disk, err := os.OpenFile(filepath.Join(t.TempDir(), "disk"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = disk.Truncate(transfer.DiskBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(disk.Name(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) { // the file system has no such files
		fd, err = unix.Open(disk.Name(), unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close(); unix.Close(fd) }) // when the guest has ended
	guest := dial(t, agentclient.Options{}, func(s *server) { s.files.transfer = newTransferDisk(fd) })
	return &diskSession{viaProxy(t, guest, agentclient.Services{Transfer: agentclient.NewTransferDisk(roomy{disk})}), guest, disk}
}

// roomy is a disk that has room.
type roomy struct{ *os.File }

func (roomy) Reserve(int64, int64) error { return nil }

// used counts the slots of a direction that something was written to.
func (d *diskSession) used(t *testing.T, direction transfer.Direction) (slots int) {
	t.Helper()
	head := make([]byte, 512)
	for lane := range transfer.Lanes {
		for n := range transfer.Slots {
			if _, err := d.disk.ReadAt(head, transfer.Offset(direction, lane, n)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(head, make([]byte, len(head))) {
				slots++
			}
		}
	}
	return slots
}

// content has no two pieces alike.
func content(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*7 ^ byte(i>>16)*31
	}
	return b
}

// TestArchivesGoByTheTransferDisk: longer than a lane, so that slots are written again, and not of whole pieces.
func TestArchivesGoByTheTransferDisk(t *testing.T) {
	d, dir := byDisk(t), t.TempDir()
	want := content(2*transfer.Slots*transfer.PieceBytes + 4711)
	if err := errors.Join(os.WriteFile(dir+"/a", want, 0o600), os.Mkdir(dir+"/to", 0o755)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the lanes are free again
		a, err := d.Pack(t.Context(), dir+"/a", "", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Unpack(t.Context(), dir+"/to", a, &agentclient.Owner{}); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if got, err := os.ReadFile(dir + "/to/a"); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	for _, direction := range []transfer.Direction{transfer.ToGuest, transfer.ToHost} {
		if n := d.used(t, direction); n < transfer.Slots {
			t.Errorf("direction %d: %d slots were written to", direction, n)
		}
	}
	plain := viaProxy(t, d.guest, agentclient.Services{})
	if _, err := d.disk.WriteAt(make([]byte, transfer.DiskBytes), 0); err != nil {
		t.Fatal(err)
	}
	a, err := plain.Pack(t.Context(), dir+"/a", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := io.Copy(io.Discard, a); err != nil || d.used(t, transfer.ToHost) != 0 {
		t.Errorf("without the disk: %v, and %d slots were written to", err, d.used(t, transfer.ToHost))
	}
}

// TestI11_CallsWithoutALaneUseThePort: an archive that nobody reads keeps its lane, and no more.
func TestI11_CallsWithoutALaneUseThePort(t *testing.T) {
	d, dir := byDisk(t), t.TempDir()
	want := content(2 * transfer.Slots * transfer.PieceBytes)
	if err := os.WriteFile(dir+"/a", want, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*agentclient.Archive
	for range transfer.Lanes + 2 {
		a, err := d.Pack(ctx, dir+"/a", "", false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	read := func(a *agentclient.Archive) {
		t.Helper()
		in := tar.NewReader(a)
		if _, err := in.Next(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	read(all[transfer.Lanes])
	read(all[0])
	cancel()
	eventually(t, "a lane is free again", func() bool {
		if _, err := d.disk.WriteAt(make([]byte, transfer.DiskBytes), 0); err != nil {
			t.Fatal(err)
		}
		a, err := d.Pack(t.Context(), dir+"/a", "", false)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		read(a)
		return d.used(t, transfer.ToHost) > 0
	})
}

// TestI13_BrokenCopiesByDiskLeaveTheFile: of a client that is cut off, and of one whose source fails.
func TestI13_BrokenCopiesByDiskLeaveTheFile(t *testing.T) {
	d, dir := byDisk(t), t.TempDir()
	if err := os.WriteFile(dir+"/a", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	body := content(3 * transfer.PieceBytes)
	if err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: int64(len(body)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	half := archive.Bytes()[:2*transfer.PieceBytes+100]
	broken := errors.New("broken source")
	for what, after := range map[string]error{"its source fails": broken, "it ends early": io.EOF} {
		source := io.MultiReader(bytes.NewReader(half), readerFunc(func([]byte) (int, error) { return 0, after }))
		_, err := d.Unpack(t.Context(), dir, source, &agentclient.Owner{})
		if err == nil || errors.Is(after, broken) && !errors.Is(err, broken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	source := io.MultiReader(bytes.NewReader(half), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }))
	if _, err := d.Unpack(ctx, dir, source, &agentclient.Owner{}); err == nil {
		t.Error("a copy that was cut off succeeded")
	}
	eventually(t, "the guest has given up", func() bool {
		list, err := os.ReadDir(dir)
		return err == nil && len(list) == 1
	})
	if b, err := os.ReadFile(dir + "/a"); err != nil || string(b) != "old" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := d.Unpack(t.Context(), dir+"/missing", bytes.NewReader(archive.Bytes()), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if _, err := d.Pack(t.Context(), dir+"/missing", "", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
}

// TestLanesWaitForTheCallBefore: what a call that was given up still writes must not be taken for another's.
func TestLanesWaitForTheCallBefore(t *testing.T) {
	disk := newTransferDisk(-1)
	first, err := disk.use(t.Context(), transfer.ToHost, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []struct {
		direction transfer.Direction
		number    uint32
	}{{transfer.ToGuest, 1}, {transfer.ToHost, 0}} {
		l, err := disk.use(t.Context(), other.direction, other.number)
		if err != nil {
			t.Fatal(err)
		}
		l.close()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := disk.use(ended, transfer.ToHost, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a lane in use: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := disk.use(t.Context(), transfer.ToHost, 1)
		if err == nil {
			l.close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("two calls use a lane: %v", err)
	default:
	}
	first.close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestI11_CallsThatHangLeaveTheirLane: a file system of the guest's may never answer the call that reads or writes there.
// Once the call is cancelled, others use its lane, and it doesn't any more.
func TestI11_CallsThatHangLeaveTheirLane(t *testing.T) {
	disk := newTransferDisk(-1)
	ctx, cancel := context.WithCancel(t.Context())
	hangs, err := disk.use(ctx, transfer.ToHost, 0)
	if err != nil {
		t.Fatal(err)
	}
	begun, end, moved := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		moved <- hangs.move(func(_ int, b []byte, _ int64) (int, error) { close(begun); <-end; return len(b), nil }, hangs.piece, 1)
	}()
	<-begun
	cancel()
	next := make(chan *lane, 1)
	go func() {
		l, err := disk.use(t.Context(), transfer.ToHost, 0)
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	select {
	case <-next:
		t.Fatal("another call uses the lane, in which a request is under way")
	case <-time.After(100 * time.Millisecond):
	}
	close(end)
	if err := <-moved; err != nil {
		t.Error(err)
	}
	select {
	case l := <-next:
		defer l.close()
	case <-time.After(5 * time.Second):
		t.Fatal("the lane stays with a call that was cancelled")
	}
	err = hangs.move(func(int, []byte, int64) (int, error) { t.Error("the next call's lane is used"); return 0, nil }, hangs.piece, 1)
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	hangs.close()
}

// TestI13_ReadyComesWithTheLane: the host writes as soon as it hears of it, over what the call before may still read.
func TestI13_ReadyComesWithTheLane(t *testing.T) {
	disk := newTransferDisk(-1)
	api := rawFiles(t, func(s *server) { s.files.transfer = disk })
	before, err := disk.use(t.Context(), transfer.ToGuest, 0)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := api.UnpackByDisk(t.Context())
	if err == nil {
		err = stream.Send(&agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Start{Start: &agentpb.UnpackByDiskStart{Unpack: &agentpb.UnpackStart{Path: t.TempDir()}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		m, err := stream.Recv()
		ready <- err == nil && m.GetReady()
	}()
	select {
	case <-ready:
		t.Error("the call before has not ended")
	case <-time.After(200 * time.Millisecond):
	}
	before.close()
	if !<-ready {
		t.Error("the lane is free, and the guest is not ready")
	}
	_ = stream.CloseSend()
}

// overwriting is a host that writes to a slot as soon as it may.
type overwriting struct {
	grpc.BidiStreamingServer[agentpb.UnpackByDiskRequest, agentpb.UnpackByDiskResponse]
	disk *os.File
}

func (overwriting) Recv() (*agentpb.UnpackByDiskRequest, error) {
	return &agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Written{Written: transfer.ToGuestBytes}}, nil
}

func (o overwriting) Send(*agentpb.UnpackByDiskResponse) error {
	_, err := o.disk.WriteAt(make([]byte, transfer.PieceBytes), transfer.Offset(transfer.ToGuest, 0, 0))
	return err
}

// TestAcknowledgedPiecesAreRead: the host writes over a piece as soon as the guest has acknowledged it.
func TestAcknowledgedPiecesAreRead(t *testing.T) {
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err == nil {
		err = disk.Truncate(transfer.DiskBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	want, slot := content(transfer.ToGuestBytes), make([]byte, transfer.PieceBytes)
	if _, err := disk.WriteAt(transfer.Mark(slot, copy(slot, want), 0), transfer.Offset(transfer.ToGuest, 0, 0)); err != nil {
		t.Fatal(err)
	}
	l, err := newTransferDisk(int(disk.Fd())).use(t.Context(), transfer.ToGuest, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	got := make([]byte, transfer.ToGuestBytes)
	if _, err := io.ReadFull(&unpackLane{lane: l, stream: overwriting{disk: disk}}, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the piece is not what was written, %v", err)
	}
}

// TestI13_PiecesOfAnEmptyDiskAreRefused: a machine that goes on where it was saved has one, and a call that was saved in the
// middle may have all messages of its archive. What it read would be zeros, which also end an archive.
func TestI13_PiecesOfAnEmptyDiskAreRefused(t *testing.T) {
	want := content(3*transfer.PieceBytes/2 + 512) // in two pieces
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: int64(len(want)), Mode: 0o600})
	if err == nil {
		_, err = w.Write(want)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for what, on := range map[string]int{"no piece": 0, "the first": 1, "both": 2} { // that are on the disk
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			if err := errors.Join(err, disk.Truncate(transfer.DiskBytes), os.WriteFile(dir+"/a", []byte("old"), 0o600)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { disk.Close() })
			stream, err := rawFiles(t, func(s *server) { s.files.transfer = newTransferDisk(int(disk.Fd())) }).UnpackByDisk(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			into := &agentpb.UnpackByDiskStart{Unpack: &agentpb.UnpackStart{Path: dir, Owner: &agentpb.Owner{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}}}
			_ = stream.Send(&agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Start{Start: into}}) // what became of it comes with Recv
			rest, slot := archive.Bytes(), make([]byte, transfer.PieceBytes)
			for n := 0; len(rest) > 0; n++ {
				size := copy(slot[:transfer.ToGuestBytes], rest)
				rest = rest[size:]
				if n < on {
					if _, err := disk.WriteAt(transfer.Mark(slot, size, n), transfer.Offset(transfer.ToGuest, 0, n)); err != nil {
						t.Fatal(err)
					}
				}
				_ = stream.Send(&agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Written{Written: uint32(size)}})
			}
			_ = stream.CloseSend()
			reported := false
			for err == nil {
				var m *agentpb.UnpackByDiskResponse
				m, err = stream.Recv()
				reported = reported || m.GetReport() != nil
			}
			got, readErr := os.ReadFile(dir + "/a")
			if readErr != nil {
				t.Fatal(readErr)
			}
			if whole := on == 2; reported != whole || errors.Is(err, io.EOF) != whole || bytes.Equal(got, want) != whole || (string(got) == "old") == whole {
				t.Errorf("a report: %v, %v, and the file has %d bytes", reported, err, len(got))
			}
		})
	}
}

// TestI12_AgentsRefuseOddPieces: the host's words are checked too.
func TestI12_AgentsRefuseOddPieces(t *testing.T) {
	dir := t.TempDir()
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err == nil {
		err = disk.Truncate(transfer.DiskBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	api := rawFiles(t, func(s *server) { s.files.transfer = newTransferDisk(int(disk.Fd())) })
	start := func(lane uint32, with *agentpb.UnpackStart) *agentpb.UnpackByDiskRequest {
		return &agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Start{Start: &agentpb.UnpackByDiskStart{Unpack: with, Lane: lane}}}
	}
	piece := func(n uint32) *agentpb.UnpackByDiskRequest {
		return &agentpb.UnpackByDiskRequest{Request: &agentpb.UnpackByDiskRequest_Written{Written: n}}
	}
	into := &agentpb.UnpackStart{Path: dir}
	for what, sent := range map[string][]*agentpb.UnpackByDiskRequest{
		"no start":     {piece(1)},
		"no lane":      {start(transfer.Lanes, into)},
		"no directory": {start(0, nil)},
		"a long piece": {start(0, into), piece(transfer.ToGuestBytes + 1)},
	} {
		stream, err := api.UnpackByDisk(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sent {
			_ = stream.Send(m)
		}
		_ = stream.CloseSend()
		for err == nil {
			var m *agentpb.UnpackByDiskResponse
			if m, err = stream.Recv(); m.GetReport() != nil {
				t.Errorf("%s: a report", what)
			}
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	stream, err := api.PackByDisk(t.Context())
	if err == nil {
		err = stream.Send(&agentpb.PackByDiskRequest{Request: &agentpb.PackByDiskRequest_Start{Start: &agentpb.PackByDiskStart{Pack: &agentpb.PackRequest{Path: dir}, Lane: transfer.Lanes}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no lane: %v", err)
	}
}

func TestAgentsWithoutADiskHaveNoLanes(t *testing.T) {
	stream, err := rawFiles(t).PackByDisk(t.Context())
	if err == nil {
		err = stream.Send(&agentpb.PackByDiskRequest{Request: &agentpb.PackByDiskRequest_Start{Start: &agentpb.PackByDiskStart{Pack: &agentpb.PackRequest{Path: "/"}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no lane") {
		t.Error(err)
	}
}

// TestHandshakesNeedTheDiskTheyName: else the host would send what nobody reads.
func TestHandshakesNeedTheDiskTheyName(t *testing.T) {
	s := newSession(t)
	_, err := agentclient.Dial(t.Context(), s.host, agentclient.Options{Root: &agentclient.Root{Transfer: agentclient.Disk{Serial: "nosuch"}}})
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Error(err)
	}
}

// TestDiskErrorsEndTheCall: half an archive is none.
func TestDiskErrorsEndTheCall(t *testing.T) {
	d, dir := byDisk(t), t.TempDir()
	if err := os.WriteFile(dir+"/a", content(1000), 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.guest.server.files.transfer.fd = closed
	defer unix.Close(closed)
	a, err := d.Pack(t.Context(), dir+"/a", "", false)
	if err == nil {
		_, err = io.Copy(io.Discard, a)
		a.Close()
	}
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("an archive without a disk: %v", err)
	}
	if _, err := d.Unpack(t.Context(), dir, bytes.NewReader(make([]byte, 1024)), nil); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("an extraction without a disk: %v", err)
	}
}

// rawFiles speaks to an agent without checking what it sends.
func rawFiles(t *testing.T, change ...func(*server)) agentpb.FilesClient {
	t.Helper()
	s := newSession(t, change...)
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.host, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := agentpb.NewAgentClient(conn).Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: agentpb.MinVersion, MaxVersion: agentpb.MaxVersion}); err != nil {
		t.Fatal(err)
	}
	return agentpb.NewFilesClient(conn)
}
