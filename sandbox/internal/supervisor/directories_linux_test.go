package supervisor

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestSharedDirectoriesAreServedToTheLast container that sees them, once for all: a container that goes takes none away from another.
// The twin is what was let go by all, which is served again, as another.
func TestSharedDirectoriesAreServedToTheLast(t *testing.T) {
	t.Parallel()
	s, info := superviseFake(t, &guestVM{}, newPlan(t, t.TempDir(), ""))
	if info == nil {
		t.Fatal(<-s.ended)
	}
	d := agentclient.HostDirectory{Path: t.TempDir(), ReadOnly: true}
	offer := func() (uint32, func()) {
		t.Helper()
		number, done, err := offerDirectory(s.supervisor, d)
		if err != nil {
			t.Fatal(err)
		}
		return number, done
	}
	first, firstDone := offer()
	second, secondDone := offer()
	firstDone()
	third, thirdDone := offer()
	if second != first || third != first {
		t.Errorf("the directory is served as %d, %d and, when one had gone, %d; want one", first, second, third)
	}
	secondDone()
	thirdDone()
	last, done := offer()
	done()
	if last == first {
		t.Error("nobody saw it any more, and it was still served")
	}
}

// sharing is the agent and the kernel of a guest to which a directory is shared.
type sharing struct {
	agentpb.UnimplementedDirectoriesServer
	port   net.Conn
	number uint32
	unique uint64

	asked *agentpb.AttachRequest
	names []string // to look up
	seen  []string // those that are there
	made  syscall.Errno
	err   error
	done  chan struct{} // closed once these are known
}

// Attach implements agentpb.DirectoriesServer.
func (g *sharing) Attach(r *agentpb.AttachRequest, s grpc.ServerStreamingServer[agentpb.AttachResponse]) error {
	g.asked, g.number = r, r.GetNumber()
	if err := s.Send(&agentpb.AttachResponse{}); err != nil {
		return err
	}
	g.err = g.use()
	close(g.done)
	<-s.Context().Done()
	return nil
}

// use sends what a kernel does (include/uapi/linux/fuse.h).
func (g *sharing) use() error {
	const lookup, mkdir, greet, poll, top, polled = 1, 9, 26, 40, 1, 1 << 63
	if _, _, err := g.ask(greet, top, binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, 38<<32|7), 0), make([]byte, 4)); err != nil {
		return err
	}
	for _, name := range g.names {
		number, b, err := g.ask(lookup, top, []byte(name+"\x00"))
		if err != nil {
			return err
		}
		if number == 0 && binary.LittleEndian.Uint64(b) != 0 {
			g.seen = append(g.seen, name)
		}
	}
	var err error
	if g.made, _, err = g.ask(mkdir, top, binary.LittleEndian.AppendUint64(nil, 0o755), []byte("made\x00")); err != nil {
		return err
	}
	_, _, err = g.ask(poll, polled)
	return err
}

// ask sends a request and returns its error's number and what is behind the header of the reply.
func (g *sharing) ask(op uint32, node uint64, body ...[]byte) (syscall.Errno, []byte, error) {
	const head = 40
	text := bytes.Join(body, nil)
	g.unique++
	b := binary.LittleEndian.AppendUint32(nil, g.number)
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(head+len(text))), op)
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, g.unique), node)
	if _, err := g.port.Write(append(append(b, make([]byte, 16)...), text...)); err != nil {
		return 0, nil, err
	}
	const before = 4 + 16 // the directory's number and the reply's own header
	reply := make([]byte, before)
	if _, err := io.ReadFull(g.port, reply); err != nil {
		return 0, nil, err
	}
	rest := make([]byte, int(binary.LittleEndian.Uint32(reply[4:]))-(before-4))
	_, err := io.ReadFull(g.port, rest)
	return syscall.Errno(-int32(binary.LittleEndian.Uint32(reply[8:]))), rest, err
}

// TestI14_GuestsGetOfADirectoryWhatThePlanSays: without the names that it hides, as it may be written to, and for the user that it names.
func TestI14_GuestsGetOfADirectoryWhatThePlanSays(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		writable  bool
		user      string
		made      syscall.Errno
		wantsUser string
	}{
		"read-only": {false, "", syscall.EROFS, "image"},
		"writable":  {true, "app", 0, "app"},
	} {
		host, err := filepath.EvalSymlinks(t.TempDir())
		must(t, err)
		for _, name := range []string{".env", "server.key", "readme"} {
			must(t, os.WriteFile(filepath.Join(host, name), nil, 0o600))
		}
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		g := &sharing{port: far, names: []string{".env", ".ENV", "server.key", "readme"}, done: make(chan struct{})}
		p := newPlan(t, t.TempDir(), "")
		p.Directories, p.Hide = []state.Directory{{Host: host, Guest: "/work", Writable: c.writable}}, []string{".env", "*.key"}
		p.DirectoryUser, p.Image.User = c.user, "image"
		s, info := superviseFake(t, &guestVM{shared: near, sharing: g}, p)
		if info == nil {
			t.Fatal(what, <-s.ended)
		}
		<-g.done
		if g.err != nil || !slices.Equal(g.seen, []string{"readme"}) || g.made != c.made {
			t.Errorf("%s: the guest sees %q, and to make a directory is %v; %v", what, g.seen, g.made, g.err)
		}
		if g.asked.GetPath() != "/work" || g.asked.GetReadOnly() == c.writable || g.asked.GetUser() != c.wantsUser {
			t.Errorf("%s: the guest mounts %v", what, g.asked)
		}
	}
}
