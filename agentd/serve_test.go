//go:build linux

package agentd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

func TestHandshakeConfiguresTheMachine(t *testing.T) {
	before := time.Now()
	s := dial(t, agentclient.Options{
		Hostname: "box", CAPEM: []byte("pem"), TrustEnv: true, Env: []string{"A=b"},
		Root: &agentclient.Root{Image: agentclient.Disk{Serial: "image"}, UpperMemoryBytes: 5},
	})
	req := s.machine.request
	if req.GetHostname() != "box" || string(req.GetTrust().GetCaPem()) != "pem" || !req.GetTrust().GetSetEnv() ||
		req.GetRoot().GetImage().GetSerial() != "image" || req.GetRoot().GetUpperMemoryBytes() != 5 || req.GetNetwork() != nil {
		t.Errorf("got %v", req)
	}
	if sent := time.Unix(0, req.GetClockUnixNs()); sent.Before(before) || sent.After(time.Now()) {
		t.Errorf("clock %s", sent)
	}
	if len(req.GetEntropy()) != 64 || bytes.Equal(req.GetEntropy(), make([]byte, 64)) {
		t.Errorf("entropy %x", req.GetEntropy())
	}
	info := s.Info()
	if info.Version != agentpb.MaxVersion || info.AgentVersion != Version || info.Kernel != "test" || len(info.Warnings) != 1 {
		t.Errorf("got %+v", info)
	}
}

func TestHandshakeThatFailsEndsTheSession(t *testing.T) {
	s := newSession(t)
	s.machine.configure = errors.New("there is no such disk")
	_, err := agentclient.Dial(t.Context(), s.host, agentclient.Options{})
	if !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// TestHandshakesAnswerTheGuestsClock: what it was to be set to says nothing of a clock that could not be set.
func TestHandshakesAnswerTheGuestsClock(t *testing.T) {
	c, before := rawClient(t, newSession(t)), time.Now()
	resp, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: agentpb.MinVersion, MaxVersion: agentpb.MaxVersion, ClockUnixNs: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Unix(0, resp.GetClockUnixNs()); got.Before(before) || got.After(time.Now()) {
		t.Errorf("clock %s", got)
	}
}

// rawClient is a host that does not keep to the order of calls.
func rawClient(t *testing.T, s *session) agentpb.AgentClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.host, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return agentpb.NewAgentClient(conn)
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

func TestNothingComesBeforeTheHandshake(t *testing.T) {
	c := rawClient(t, newSession(t))
	_, err := c.Stats(t.Context(), &agentpb.StatsRequest{})
	wantCode(t, "stats", err, codes.FailedPrecondition)
	_, err = c.Shutdown(t.Context(), &agentpb.ShutdownRequest{})
	wantCode(t, "shutdown", err, codes.FailedPrecondition)
	stream, err := c.Exec(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "exec", err, codes.FailedPrecondition)
}

func TestHandshakeAgreesOnAVersionOnce(t *testing.T) {
	c := rawClient(t, newSession(t))
	for name, tt := range map[string]struct {
		min, max uint32
		want     codes.Code
	}{
		"none":       {0, 0, codes.Unimplemented},
		"too new":    {agentpb.MaxVersion + 1, agentpb.MaxVersion + 9, codes.Unimplemented},
		"backwards":  {5, 1, codes.Unimplemented},
		"impossible": {agentpb.MaxVersion + 1, 0, codes.Unimplemented},
	} {
		_, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: tt.min, MaxVersion: tt.max})
		wantCode(t, name, err, tt.want)
	}
	for _, entry := range []string{"", "A", "=x", "A=b\x00c", "A\x00=b"} {
		_, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MaxVersion: 1, Env: []string{"B=", entry}})
		wantCode(t, strconv.Quote(entry), err, codes.InvalidArgument)
	}
	resp, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: 0, MaxVersion: 99, Env: []string{"B="}})
	wantCode(t, "fits", err, codes.OK)
	if resp.GetVersion() != agentpb.MaxVersion {
		t.Errorf("version %d", resp.GetVersion())
	}
	_, err = c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: 1, MaxVersion: 1})
	wantCode(t, "again", err, codes.FailedPrecondition)
}

func TestExecStreamMustBeginWithStart(t *testing.T) {
	c := rawClient(t, newSession(t))
	_, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: 1, MaxVersion: 1})
	wantCode(t, "handshake", err, codes.OK)
	for name, req := range map[string]*agentpb.ExecRequest{
		"nothing": {},
		"stdin":   {Request: &agentpb.ExecRequest_Stdin{Stdin: []byte("x")}},
		"signal":  {Request: &agentpb.ExecRequest_Signal{Signal: 9}},
	} {
		stream, err := c.Exec(t.Context())
		if err == nil {
			if err = stream.Send(req); err == nil {
				_, err = stream.Recv()
			}
		}
		wantCode(t, name, err, codes.InvalidArgument)
	}
}

func TestI11_StdinKeepsWithinItsWindow(t *testing.T) {
	q := newStdinQueue()
	if !q.put(make([]byte, agentpb.StdinWindowBytes)) || q.put([]byte("x")) {
		t.Error("the window is not what may be sent ahead")
	}
	chunk, _ := q.take()
	if q.put([]byte("x")) {
		t.Error("a chunk that is being written gave its room back")
	}
	if q.written(len(chunk)); !q.put([]byte("x")) {
		t.Error("what was written gave no room back")
	}
	empty := newStdinQueue() // such chunks take no room, and would be held without a bound
	if ok := empty.put(nil); !ok || len(empty.chunks) != 0 {
		t.Errorf("an empty chunk is held: %t, %d", ok, len(empty.chunks))
	}
}

// execStream is a host that asks for one process, and looks how many hold a place at each reply.
type execStream struct {
	agentpb.Agent_ExecServer
	ctx    context.Context
	server *server
	start  chan *agentpb.ExecRequest
	held   map[string]int32
}

func (s *execStream) Context() context.Context { return s.ctx }

func (s *execStream) Recv() (*agentpb.ExecRequest, error) {
	select {
	case r := <-s.start:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *execStream) Send(r *agentpb.ExecResponse) error {
	s.held[fmt.Sprintf("%T", r.GetResponse())] = s.server.execs.Load()
	return nil
}

// TestExitsHoldNoPlace: a host that reads of an exit may start another process at once, also at the bound.
func TestExitsHoldNoPlace(t *testing.T) {
	s := newSession(t)
	for program, want := range map[string]map[string]int32{
		"true":     {"*agentpb.ExecResponse_Started": 1, "*agentpb.ExecResponse_Exit": 0},
		"/nowhere": {"*agentpb.ExecResponse_Exit": 0},
	} {
		stream := &execStream{ctx: t.Context(), server: s.server, start: make(chan *agentpb.ExecRequest, 1), held: map[string]int32{}}
		stream.start <- &agentpb.ExecRequest{Request: &agentpb.ExecRequest_Start{Start: &agentpb.ExecStart{Argv: []string{program}}}}
		if err := s.server.Exec(stream); err != nil || !maps.Equal(stream.held, want) {
			t.Errorf("%s: %v, %v; want %v", program, stream.held, err, want)
		}
	}
}

func TestWindowSizesAreNotCut(t *testing.T) {
	if got := windowSize(&agentpb.WindowSize{Rows: 1<<16 + 24, Cols: 1<<32 - 1}); got.Rows != 1<<16-1 || got.Cols != 1<<16-1 {
		t.Errorf("got %+v", got)
	}
}

func TestI11_StdinAboveCreditEndsExec(t *testing.T) {
	c := rawClient(t, newSession(t))
	_, err := c.Handshake(t.Context(), &agentpb.HandshakeRequest{MinVersion: 1, MaxVersion: 1})
	wantCode(t, "handshake", err, codes.OK)
	stream, err := c.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := &agentpb.ExecStart{Argv: []string{"sleep", "1000"}, Stdin: true}
	if err := stream.Send(&agentpb.ExecRequest{Request: &agentpb.ExecRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	go func() {
		chunk := &agentpb.ExecRequest{Request: &agentpb.ExecRequest_Stdin{Stdin: make([]byte, agentpb.ChunkBytes)}}
		for stream.Send(chunk) == nil { // until it is refused
		}
	}()
	for err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "flood", err, codes.ResourceExhausted)
}

func TestI12_HostGarbageEndsTheSession(t *testing.T) {
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	for name, data := range map[string][]byte{
		"text":              []byte("GET / HTTP/1.1\r\nHost: agent\r\n\r\n"),
		"zeros":             make([]byte, 4096),
		"frame too large":   append(append(append([]byte{}, preface...), settings...), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
		"data on no stream": append(append(append([]byte{}, preface...), settings...), 0, 0, 1, 0, 0, 0, 0, 0, 0, 'x'),
		"settings not first": append(append([]byte{}, preface...),
			0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			go func() {
				buf := make([]byte, 4096)
				for {
					if _, err := s.host.Read(buf); err != nil {
						return
					}
				}
			}()
			_, _ = s.host.Write(data) // the server may hang up in the middle
			err := <-s.served
			s.served <- err
			if !errors.Is(err, errProtocol) {
				t.Errorf("got %v, want ErrProtocol", err)
			}
		})
	}
}

func TestHostThatLeavesEndsTheSession(t *testing.T) {
	s := dial(t, agentclient.Options{})
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		o := script("echo up; sleep 1000")
		o.Stdout = onFirstWrite(func() { close(started) })
		_, err := s.Exec(t.Context(), o)
		done <- err
	}()
	<-started
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, agentclient.ErrClosed) {
		t.Errorf("the call under way: %v", err)
	}
	err := <-s.served
	s.served <- err
	if !errors.Is(err, errHostGone) {
		t.Errorf("got %v", err)
	}
}

func TestShutdownAnswersThenEnds(t *testing.T) {
	s := dial(t, agentclient.Options{})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	err := <-s.served
	s.served <- err
	if err != nil || !s.machine.ended {
		t.Errorf("got %v, terminated %v", err, s.machine.ended)
	}
	if !errors.Is(s.Err(), agentclient.ErrAgentDead) {
		t.Errorf("the host was told %v", s.Err())
	}
}

func TestControlCalls(t *testing.T) {
	s := dial(t, agentclient.Options{})
	when := time.Unix(1800000000, 5)
	if off, err := s.SetClock(t.Context(), when); err != nil || off != time.Second || !s.machine.clock.Equal(when) {
		t.Errorf("got %s, %v, clock %s", off, err, s.machine.clock)
	}
	if _, err := s.SetClock(t.Context(), time.Unix(0, 0)); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("got %v", err)
	}
	before := time.Now()
	if st, err := s.Stats(t.Context()); err != nil || st.Processes != 7 || st.MaxExecs != maxExecs || st.Clock.Before(before) || st.Clock.After(time.Now()) {
		t.Errorf("got %+v, %v", st, err)
	}
}
