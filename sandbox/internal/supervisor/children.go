package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// What programs of a sandbox may ask of its supervisor for children. What is beyond it waits in the guest, where the agent
// closes what has been among the first 16 that wait for 10 seconds.
const (
	// maxChildCalls is how many requests are under way at once. Each has one request in memory, and the window of one exec.
	maxChildCalls = 4
	// childRate is how many begin in a second, childBurst how many at once after a pause.
	childRate  = 5
	childBurst = 20
	// childRequestWait is how long a program may take to send its request.
	childRequestWait = 10 * time.Second
)

// ChildCall answers one request of a program of the guest's, which is in request, to out. ctx ends when the program gives
// up. It returns what the audit log says of it.
type ChildCall func(ctx context.Context, request []byte, out io.Writer) audit.Event

// children are asked for by programs of the guest, over a socket of the agent's that leads to no other process.
type children struct {
	s    *supervisor
	hook func(*state.Plan) (ChildCall, error)
	wait time.Duration // childRequestWait; tests change it
	log  func(audit.Event)
}

// open lets programs of the guest ask, if the sandbox has a budget. It is no error if the guest can't open the socket:
// its programs just can't ask.
func (c *children) open() {
	if !c.s.plan.Children || c.hook == nil {
		return
	}
	call, err := c.hook(c.s.plan)
	var l *agentclient.Listener
	if err == nil {
		l, err = c.s.agent.Listen(c.s.ctx, agentclient.ListenOptions{Back: agentclient.BackChildren, User: c.s.plan.Image.User})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "programs of the guest can't ask for children: %v\n", err) // the supervisor's log
		return
	}
	c.s.work.Go(func() { c.serve(l, call) })
}

// guestConn is an agentclient.Conn.
type guestConn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

const defaultGuestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" // as the agent's own

var errChildRequest = errors.New("a program of the guest sent no request that could be read")

func (c *children) serve(l *agentclient.Listener, call ChildCall) {
	defer func() { _ = l.Close() }()
	c.serveOn(func() (guestConn, error) {
		conn, _, err := l.Accept()
		return conn, err
	}, call)
}

// serveOn answers until accept fails, and returns when the last answer has ended.
func (c *children) serveOn(accept func() (guestConn, error), call ChildCall) {
	ctx, cancel := context.WithCancel(c.s.ctx)
	slots := make(chan struct{}, maxChildCalls)
	defer func() {
		cancel()
		for range maxChildCalls { // those under way
			slots <- struct{}{}
		}
	}()
	limit := rate.NewLimiter(childRate, childBurst)
	for {
		if limit.Wait(ctx) != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := accept()
		if err != nil {
			<-slots
			return
		}
		go func() {
			defer func() { <-slots }()
			c.answer(ctx, conn, call)
		}()
	}
}

// answer serves one connection: a request, and what is said to it. A program that closes its end, or sends more, gives up.
func (c *children) answer(ctx context.Context, conn guestConn, call ChildCall) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	late := time.AfterFunc(c.wait, cancel)
	request, err := readRequest(conn)
	late.Stop()
	if err != nil {
		if errors.Is(err, errChildRequest) {
			c.log(audit.Event{Kind: audit.ChildRequest, Message: err.Error()})
		}
		return
	}
	go func() {
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	began := time.Now()
	e := call(ctx, request, conn)
	e.Kind, e.Duration = audit.ChildRequest, time.Since(began)
	c.log(e)
	if conn.CloseWrite() != nil { // what was written is on its way; the program closes once it has it
		return
	}
	defer time.AfterFunc(c.wait, cancel).Stop()
	<-ctx.Done()
}

// readRequest reads a line.
func readRequest(r io.Reader) ([]byte, error) {
	buf := make([]byte, 0, 4<<10)
	for len(buf) < agentpb.MaxChildRequest {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, min(len(buf), agentpb.MaxChildRequest-len(buf)))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), agentpb.MaxChildRequest)])
		fresh := buf[len(buf) : len(buf)+n]
		buf = buf[:len(buf)+n]
		if i := bytes.IndexByte(fresh, '\n'); i >= 0 {
			if i != len(fresh)-1 {
				return nil, errChildRequest
			}
			return buf[:len(buf)-1], nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errChildRequest
}

// addPath has shells find the agent's program.
func (c *children) addPath(env []string) []string {
	if !c.s.plan.Children {
		return env
	}
	path := defaultGuestPath
	for _, v := range env { // the last one counts
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	return append(env, "PATH="+path+":"+agentpb.ChildDir)
}
