package supervisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// programs are connections that programs of a guest make, which call answers.
type programs struct {
	t        *testing.T
	listener *net.UnixListener
	accepted atomic.Int32
	logged   chan audit.Event
}

// asking serves them until the test ends.
func asking(t *testing.T, wait time.Duration, call ChildCall) *programs {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	must(t, err)
	s := newSupervisor(&state.Plan{Children: true}, nil, nil)
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(t.Context())
	s.children.wait = wait
	p := &programs{t: t, listener: l, logged: make(chan audit.Event, 100)}
	s.children.log = func(e audit.Event) { p.logged <- e }
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.children.serveOn(func() (guestConn, error) {
			c, err := l.AcceptUnix()
			if err != nil {
				return nil, err
			}
			p.accepted.Add(1)
			return c, nil
		}, call)
	}()
	t.Cleanup(func() { cancel(); _ = l.Close(); <-done })
	return p
}

func (p *programs) dial() *net.UnixConn {
	p.t.Helper()
	c, err := net.DialUnix("unix", nil, p.listener.Addr().(*net.UnixAddr))
	must(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	must(p.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

// TestI15_RequestsForChildrenAreBounded: what is too long, goes on behind its line, stops in it or never comes is closed
// without an answer, and the next one is answered.
func TestI15_RequestsForChildrenAreBounded(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	p := asking(t, 200*time.Millisecond, func(_ context.Context, request []byte, out io.Writer) audit.Event {
		asked.Store(string(request), true)
		_, _ = out.Write(request)
		return audit.Event{Verb: string(request[:1])}
	})
	most := strings.Repeat("y", agentpb.MaxChildRequest-1)
	for _, c := range []struct {
		sends    string
		ends     bool // closes its end behind it
		answered bool
	}{
		{"x\n", false, true}, {"x\n", true, true}, {most + "\n", false, true},
		{most + "y\n", false, false}, {strings.Repeat("z", 4<<20), false, false}, {"x\ny", false, false}, {"x\ny\n", false, false}, {"x", false, false}, {"x", true, false}, {"", true, false}, {"", false, false},
	} {
		conn := p.dial()
		_, _ = conn.Write([]byte(c.sends)) // it may be closed before all is sent
		if c.ends {
			_ = conn.CloseWrite()
		}
		got, err := io.ReadAll(conn)
		want := ""
		if c.answered {
			want = strings.TrimSuffix(c.sends, "\n")
		}
		// A program that closes its end gives up, and may see its answer or not.
		if string(got) != want && (!c.ends || !c.answered) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q (%d bytes): got %.20q, %v", c.sends, len(c.sends), got, err)
		}
		_ = conn.Close()
		if read := c.answered && !c.ends || strings.Contains(c.sends, "\ny") || len(c.sends) > agentpb.MaxChildRequest; read {
			e := <-p.logged
			if e.Kind != audit.ChildRequest || c.answered != (e.Verb == want[:min(1, len(want))] && e.Message == "") {
				t.Errorf("%.20q: the audit log has %+v", c.sends, e)
			}
		} else if c.ends && c.answered {
			<-p.logged
		}
	}
	if len(p.logged) > 0 {
		t.Errorf("the audit log has %+v of what was no request", <-p.logged)
	}
	asked.Range(func(key, _ any) bool {
		if s, _ := key.(string); s != "x" && s != most {
			t.Errorf("%.20q was a request", s)
		}
		return true
	})
}

// TestI15_ChildRequestsInFlightAreBounded: a flood waits in the guest, and the end of a program ends what it asked for.
func TestI15_ChildRequestsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	p := asking(t, time.Minute, func(ctx context.Context, _ []byte, _ io.Writer) audit.Event {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return audit.Event{}
	})
	next := func(c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("it never comes")
		}
	}
	var conns []*net.UnixConn
	for range childBurst / 2 {
		c := p.dial()
		_, err := c.Write([]byte("x\n"))
		must(t, err)
		conns = append(conns, c)
	}
	for range maxChildCalls {
		next(began)
	}
	if n := p.accepted.Load(); n != maxChildCalls || len(began) != 0 {
		t.Errorf("%d are accepted, want %d", n, maxChildCalls)
	}
	_ = conns[0].Close() // as a program that is killed
	next(ended)
	select {
	case <-p.logged: // though nobody is there for the answer
	case <-time.After(time.Minute):
		t.Error("a request whose program has gone isn't logged")
	}
	next(began)
	if n := p.accepted.Load(); n != maxChildCalls+1 {
		t.Errorf("%d are accepted, want one more", n)
	}
	_, _ = conns[1].Write([]byte("y")) // more than a request
	next(ended)
	next(began)
}

// TestI15_AnsweredProgramsHoldNoPlace: programs that have their answer and don't close the connection keep others waiting only
// for a bounded time.
func TestI15_AnsweredProgramsHoldNoPlace(t *testing.T) {
	t.Parallel()
	p := asking(t, 50*time.Millisecond, func(_ context.Context, _ []byte, out io.Writer) audit.Event {
		_, _ = io.WriteString(out, "done\n")
		return audit.Event{}
	})
	for i := range 2*maxChildCalls + 1 {
		c := p.dial()
		_, err := c.Write([]byte("x\n"))
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		if got, err := io.ReadAll(c); err != nil || string(got) != "done\n" {
			t.Fatalf("program %d, behind those that keep their connections: %q, %v", i, got, err)
		}
	}
}

// TestI15_RequestsForChildrenHaveARate: behind the burst, each waits for its time.
func TestI15_RequestsForChildrenHaveARate(t *testing.T) {
	t.Parallel()
	p := asking(t, time.Minute, func(_ context.Context, _ []byte, out io.Writer) audit.Event {
		_, _ = out.Write([]byte("z"))
		return audit.Event{}
	})
	from := time.Now()
	const beyond = 3
	for range childBurst + beyond {
		c := p.dial()
		_, err := c.Write([]byte("x\n"))
		must(t, err)
		got := make([]byte, 1)
		_, err = io.ReadFull(c, got)
		must(t, err)
		_ = c.Close()
	}
	if took, least := time.Since(from), (beyond-1)*time.Second/childRate; took < least {
		t.Errorf("%d requests in %s, want %s at least", childBurst+beyond, took, least)
	}
}

// TestChildrenAreOffByDefault: without a budget nothing is asked of the guest, and no path is added.
func TestChildrenAreOffByDefault(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{}, nil, nil)
	s.children.hook = func(*state.Plan) (ChildCall, error) { t.Error("asked"); return nil, nil }
	s.children.open() // which would use an agent that is not there
	if env := s.children.addPath([]string{"PATH=/x"}); len(env) != 1 {
		t.Errorf("%q", env)
	}
	s.plan.Children = true
	for _, env := range [][]string{nil, {"PATH=/x"}, {"PATH=/y", "PATH=/x"}} {
		want := "PATH=/x:" + agentpb.ChildDir
		if env == nil {
			want = "PATH=" + defaultGuestPath + ":" + agentpb.ChildDir
		}
		if got := s.children.addPath(env); got[len(got)-1] != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}

func TestRequestsForChildrenComeInPieces(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("0123456789"), 9000)
	got, err := readRequest(io.MultiReader(bytes.NewReader(want[:3]), bytes.NewReader(want[3:]), strings.NewReader("\n")))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
