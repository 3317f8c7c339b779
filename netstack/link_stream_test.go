package netstack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// finished is a link whose peer has said everything.
type finished struct {
	io.Reader
	io.Writer
}

func (finished) Close() error { return nil }

// TestI3_TruncatedStreamsEndInErrors reads streams of frames, whole and in single bytes: the lengths of the frames, then the error.
func TestI3_TruncatedStreamsEndInErrors(t *testing.T) {
	t.Parallel()
	framed := func(n, have int) string {
		return string(append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, have)...))
	}
	const kept = netstack.MaxFrame + 1
	for _, c := range []struct {
		said   string
		frames []int
		want   error
	}{
		{"", nil, io.EOF},
		{framed(60, 60), []int{60}, io.EOF},
		{framed(60, 60) + framed(0, 0) + framed(1, 1), []int{60, 0, 1}, io.EOF},
		{framed(60, 60) + "\x00\x00", []int{60}, io.ErrUnexpectedEOF},
		{framed(60, 60) + "\x00\x00\x00\x3c", []int{60}, io.ErrUnexpectedEOF},
		{framed(60, 59), nil, io.ErrUnexpectedEOF},
		{framed(netstack.MaxFrame, netstack.MaxFrame) + framed(60, 60), []int{netstack.MaxFrame, 60}, io.EOF},
		{framed(kept, kept) + framed(60, 60), []int{kept, 60}, io.EOF},
		{framed(kept+1, kept+1) + framed(60, 60), []int{kept, 60}, io.EOF},
		{framed(1<<20, 1<<20) + framed(60, 60), []int{kept, 60}, io.EOF},
		{framed(1<<20, 1<<20-1), []int{kept}, io.ErrUnexpectedEOF},
		{framed(kept+1, kept), []int{kept}, io.ErrUnexpectedEOF},
		{framed(1<<20+1, 10), nil, netstack.ErrFraming},
		{framed(60, 60) + framed(1<<32-1, 1<<10), []int{60}, netstack.ErrFraming},
	} {
		for _, pieces := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader} {
			link := netstack.NewStreamLink(finished{pieces(bytes.NewReader([]byte(c.said))), io.Discard})
			var got []int
			var err error
			for err == nil {
				var frame []byte
				if frame, err = link.ReadFrame(); frame != nil {
					got = append(got, len(frame))
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.frames) || !errors.Is(err, c.want) {
				t.Errorf("%d bytes: frames %v, %v; want %v, %v", len(c.said), got, err, c.frames, c.want)
			}
		}
	}
}

// TestLinksOfFiles takes the ends of socketpairs, and names what is none.
func TestLinksOfFiles(t *testing.T) {
	t.Parallel()
	pair := func(kind int) (*os.File, *os.File) {
		fds, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	}
	frame := bytes.Repeat([]byte{7}, 60)
	for name, open := range map[string]func(*os.File) (netstack.Link, error){
		"stream":   func(f *os.File) (netstack.Link, error) { return netstack.NewStreamLinkFile(f) },
		"datagram": func(f *os.File) (netstack.Link, error) { return netstack.NewDatagramLinkFile(f) },
	} {
		a, b := pair(map[string]int{"stream": unix.SOCK_STREAM, "datagram": unix.SOCK_DGRAM}[name])
		here, err := open(a)
		there, err2 := open(b)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		var batch netstack.Batch
		batch.Part(frame[:14])
		batch.Part(frame[14:])
		batch.End()
		if name == "datagram" {
			batch.Part([]byte("VFKT")) // which is no frame
			batch.End()
		}
		batch.Part(frame[:20])
		batch.End()
		if err := here.WriteFrames(&batch); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{60, 20} {
			if got, err := there.ReadFrame(); err != nil || !bytes.Equal(got, frame[:want]) {
				t.Errorf("%s: %x, %v; want %d bytes", name, got, err, want)
			}
		}
		_ = there.Close()
		if name == "datagram" { // its peer is told at once
			if err := here.WriteFrames(&batch); err == nil {
				t.Errorf("%s: a write to a peer that has gone worked", name)
			}
		}
		_ = here.Close()
		if err := here.WriteFrames(&batch); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a write after Close: %v", name, err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(r); err == nil {
			t.Errorf("%s: a pipe was taken for a socket", name)
		}
		_ = w.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netstack.NewDatagramLinkFile(f); err == nil {
		t.Error("a TCP socket was taken for a datagram link")
	}
}

// TestDHCPAnswersEachKindOfMessage has a client ask for its own address, for others, and of other servers.
func TestDHCPAnswersEachKindOfMessage(t *testing.T) {
	t.Parallel()
	const discover, request, decline, release, inform = 1, 3, 4, 7, 8
	const offer, ack, nak = 2, 5, 6
	s, g := netstacktest.Start(t, netstack.Config{DHCP: true, Handler: &netstacktest.Handler{}})
	cfg := g.Config()
	own, gateway, other := cfg.Guest4.AsSlice(), cfg.Gateway4.AsSlice(), []byte{10, 1, 2, 3}
	option := func(code byte, value []byte) []byte { return append([]byte{code, byte(len(value))}, value...) }
	const requested, server = 50, 54
	for i, c := range []struct {
		kind    byte
		options []byte
		ciaddr  []byte
		op      byte
		want    byte // 0 for silence
	}{
		{discover, nil, nil, 1, offer},
		{request, option(requested, own), nil, 1, ack},
		{request, append(option(requested, own), option(server, gateway)...), nil, 1, ack},
		{request, append(option(requested, own), option(server, other)...), nil, 1, 0},
		{request, option(requested, other), nil, 1, nak},
		{request, nil, own, 1, ack}, // a renewal
		{request, nil, other, 1, nak},
		{request, nil, nil, 1, ack},
		{request, option(requested, own), other, 1, ack},
		{inform, nil, own, 1, ack},
		{decline, option(requested, own), nil, 1, 0},
		{release, nil, own, 1, 0},
		{offer, nil, nil, 1, 0},
		{discover, nil, nil, 2, 0}, // a server's
	} {
		m := make([]byte, 240)
		m[0], m[1], m[2], m[4] = c.op, 1, 6, byte(i) // the last is of the transaction's number
		copy(m[12:], c.ciaddr)
		copy(m[28:], g.MAC())
		copy(m[236:], []byte{99, 130, 83, 99})
		m = append(append(append(m, 53, 1, c.kind), c.options...), 255)
		src, dst := netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67")
		f := eth(g, ipv4(src.Addr(), dst.Addr(), 17, udp(src, dst, m)))
		copy(f, bytes.Repeat([]byte{255}, 6))
		before := s.Stats().Drops[frameguard.DropDHCP.Reason()]
		g.Inject(f)
		if c.want == 0 {
			eventually(t, "a message without an answer", func() bool { return s.Stats().Drops[frameguard.DropDHCP.Reason()] == before+1 })
			continue
		}
		f, err := g.WaitFrame(testContext(t), func(f []byte) bool {
			return len(f) > 42+240 && f[23] == 17 && f[37] == 68 && f[42+4] == byte(i)
		})
		if err != nil {
			t.Fatalf("%+v: no answer", c)
		}
		have := map[byte]string{}
		for o := f[42+240:]; len(o) > 2 && o[0] != 255; o = o[2+int(o[1]):] {
			have[o[0]] = string(o[2 : 2+int(o[1])])
		}
		lease := c.want != nak && c.kind != inform
		if have[53] != string(c.want) || have[server] != string(gateway) || (have[51] != "") != lease || (have[3] == string(gateway)) != (c.want != nak) ||
			(have[6] == string(gateway)) != (c.want != nak) || bytes.Equal(f[42+16:42+20], own) != lease {
			t.Errorf("message %d with %v: %v, address %v", c.kind, c.options, have, f[42+16:42+20])
		}
	}
}
