package agentclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestMain looks for goroutines that outlive the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent is a guest that says what a test wants.
type fakeAgent struct {
	agentpb.UnimplementedAgentServer
	handshake func() (*agentpb.HandshakeResponse, error)
	clock     func(sent int64) int64 // what the guest's clock shows after the handshake
	exec      func(agentpb.Agent_ExecServer) error
	stats     func() (*agentpb.StatsResponse, error)
	// containers may be nil.
	containers agentpb.ContainersServer
}

func (f *fakeAgent) Handshake(_ context.Context, req *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	if f.handshake != nil {
		return f.handshake()
	}
	if f.clock != nil {
		return &agentpb.HandshakeResponse{Version: agentpb.MaxVersion, ClockUnixNs: f.clock(req.GetClockUnixNs())}, nil
	}
	return &agentpb.HandshakeResponse{Version: agentpb.MaxVersion}, nil
}

func (f *fakeAgent) Exec(s agentpb.Agent_ExecServer) error { return f.exec(s) }

func (f *fakeAgent) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	return f.stats()
}

// pipeListener gives one connection.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return streamAddr{} }

// serveFake returns the host's end of a fake agent's stream.
func serveFake(t testing.TB, f *fakeAgent) net.Conn {
	t.Helper()
	host, guest := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- guest
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, f)
	if f.containers != nil {
		agentpb.RegisterContainersServer(srv, f.containers)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() { close(l.done); srv.Stop(); <-served })
	return host
}

func dialFake(t *testing.T, f *fakeAgent) *Client {
	t.Helper()
	c, err := Dial(t.Context(), serveFake(t, f), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Messages of an exec.
var (
	started = &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{StdinWindow: 1 << 31}}}
	output  = &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: []byte("x")}}
	ack     = &agentpb.ExecResponse{Response: &agentpb.ExecResponse_StdinAck{StdinAck: 1}}
	ackZero = &agentpb.ExecResponse{Response: &agentpb.ExecResponse_StdinAck{}}
	unknown = &agentpb.ExecResponse{}
	huge    = &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: make([]byte, 2*agentpb.MaxMessageBytes)}}
)

func exit(e *agentpb.Exit) *agentpb.ExecResponse {
	return &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: e}}
}

func TestI12_MisorderedExecMessagesEndSessions(t *testing.T) {
	t.Parallel()
	notFound := agentpb.StartError_START_ERROR_NOT_FOUND
	for name, tt := range map[string]struct {
		send []*agentpb.ExecResponse
		end  error
		want error
	}{
		"nothing at all":            {want: ErrProtocol},
		"no exit":                   {send: []*agentpb.ExecResponse{started, output}, want: ErrProtocol},
		"started twice":             {send: []*agentpb.ExecResponse{started, started}, want: ErrProtocol},
		"output first":              {send: []*agentpb.ExecResponse{output}, want: ErrProtocol},
		"unknown kind":              {send: []*agentpb.ExecResponse{started, unknown}, want: ErrProtocol},
		"stdin never sent":          {send: []*agentpb.ExecResponse{started, ack}, want: ErrProtocol},
		"an ack of nothing":         {send: []*agentpb.ExecResponse{started, ackZero, exit(&agentpb.Exit{})}, want: ErrProtocol},
		"exit before start":         {send: []*agentpb.ExecResponse{exit(&agentpb.Exit{})}, want: ErrProtocol},
		"start error after start":   {send: []*agentpb.ExecResponse{started, exit(&agentpb.Exit{Code: 127, StartError: notFound})}, want: ErrProtocol},
		"start error with code 0":   {send: []*agentpb.ExecResponse{exit(&agentpb.Exit{StartError: notFound})}, want: ErrProtocol},
		"code that wraps to 0":      {send: []*agentpb.ExecResponse{started, exit(&agentpb.Exit{Code: 256})}, want: ErrProtocol},
		"negative code":             {send: []*agentpb.ExecResponse{started, exit(&agentpb.Exit{Code: -1})}, want: ErrProtocol},
		"impossible signal":         {send: []*agentpb.ExecResponse{started, exit(&agentpb.Exit{Code: 1, Signal: 1 << 30})}, want: ErrProtocol},
		"signal with success":       {send: []*agentpb.ExecResponse{started, exit(&agentpb.Exit{Signal: 9})}, want: ErrProtocol},
		"huge message":              {send: []*agentpb.ExecResponse{started, huge}, want: errTooLarge},
		"its own internal error":    {end: status.Error(codes.Internal, "\x1b]52;c;bad\x07"), want: ErrProtocol},
		"a status nobody knows":     {end: status.Error(codes.Code(99), "x"), want: ErrProtocol},
		"success without a message": {end: status.Error(codes.OK, ""), want: ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
				for _, m := range tt.send {
					if err := s.Send(m); err != nil {
						return err
					}
				}
				return tt.end
			}})
			st, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"x"}})
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %+v, %v; want %v", st, err, tt.want)
			}
			if strings.ContainsAny(err.Error(), "\x1b\x07") {
				t.Errorf("control characters of the guest are in %q", err)
			}
			<-c.Done()
			if !errors.Is(c.Err(), tt.want) {
				t.Errorf("the session ended with %v", c.Err())
			}
			if _, err := c.Stats(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("a later call: %v", err)
			}
		})
	}
}

func TestI12_HandshakeAnswersAreJudged(t *testing.T) {
	t.Parallel()
	answer := func(v uint32) func() (*agentpb.HandshakeResponse, error) {
		return func() (*agentpb.HandshakeResponse, error) { return &agentpb.HandshakeResponse{Version: v}, nil }
	}
	for name, tt := range map[string]struct {
		handshake func() (*agentpb.HandshakeResponse, error)
		want      error
	}{
		"version 0":         {answer(0), ErrVersion},
		"version not asked": {answer(agentpb.MaxVersion + 1), ErrVersion},
		"no version fits":   {func() (*agentpb.HandshakeResponse, error) { return nil, status.Error(codes.Unimplemented, "old") }, ErrVersion},
		"refused":           {func() (*agentpb.HandshakeResponse, error) { return nil, status.Error(codes.Aborted, "no disk") }, ErrRefused},
		"huge": {func() (*agentpb.HandshakeResponse, error) {
			return &agentpb.HandshakeResponse{Version: 1, Kernel: strings.Repeat("x", 2*agentpb.MaxMessageBytes)}, nil
		}, errTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dial(t.Context(), serveFake(t, &fakeAgent{handshake: tt.handshake}), Options{})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHandshakeTextsAreCleanedAndBounded(t *testing.T) {
	t.Parallel()
	warnings := make([]string, 1000)
	c := dialFake(t, &fakeAgent{handshake: func() (*agentpb.HandshakeResponse, error) {
		return &agentpb.HandshakeResponse{Version: 1, Kernel: "6.1\x1b[2J", AgentVersion: strings.Repeat("v", 5000), Warnings: warnings}, nil
	}})
	i := c.Info()
	if i.Kernel != "6.1?[2J" || len(i.AgentVersion) > 2*maxGuestTextBytes || len(i.Warnings) != maxWarnings {
		t.Errorf("got %q, %d bytes, %d warnings", i.Kernel, len(i.AgentVersion), len(i.Warnings))
	}
}

func TestHandshakeTellsHowFarTheClockIsBehind(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		offset      time.Duration // the guest's clock, from the moment that it was set to
		least, most time.Duration
	}{
		"set at once":           {0, 0, time.Hour},
		"behind":                {-day, day, day + time.Hour},
		"ahead":                 {day, -day, -day + time.Hour},
		"an agent without this": {time.Duration(-time.Now().UnixNano()), 365 * day, 1 << 62},
	} {
		c := dialFake(t, &fakeAgent{clock: func(sent int64) int64 { return sent + int64(tt.offset) }})
		if got := c.Info().ClockBehind; got < tt.least || got > tt.most {
			t.Errorf("%s: %v, want %v to %v", name, got, tt.least, tt.most)
		}
	}
}

func TestGuestThatIsSilentTimesOut(t *testing.T) {
	t.Parallel()
	host, guest := net.Pipe()
	defer guest.Close()
	go io.Copy(io.Discard, guest)
	_, err := Dial(t.Context(), host, Options{HandshakeTimeout: 50 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if _, err := host.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the stream is still open: %v", err)
	}
}

// TestEarlyResetsCountAsDeadlines: the guest's end counts the caller's deadline too, and its reset may come first.
func TestEarlyResetsCountAsDeadlines(t *testing.T) {
	t.Parallel()
	c := dialFake(t, &fakeAgent{})
	for left, want := range map[time.Duration]bool{earlyDeadline / 2: true, time.Hour: false} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		err := c.callError(ctx, status.Error(codes.Canceled, "reset"))
		if !errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded) != want {
			t.Errorf("%s before the deadline: %v", left, err)
		}
		cancel()
	}
}

// frames writes HTTP/2 frames of a server after its settings.
func frames(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	write(f)
	return b.Bytes()
}

func TestI12_BrokenStreamsAreNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		data  []byte // sent at once
		then  []byte // sent when the handshake was asked for
		close bool
		want  error
	}{
		"end of file at once":  {close: true, want: ErrAgentDead},
		"text":                 {data: []byte("login: \r\nlogin: \r\n"), want: ErrProtocol},
		"zeros":                {data: make([]byte, 1<<16), want: ErrProtocol},
		"a frame of 16 MiB":    {data: frames(func(f *http2.Framer) { _ = f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<24-1)) }), want: ErrProtocol},
		"length that lies":     {data: append(frames(func(*http2.Framer) {}), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1), want: ErrProtocol},
		"cut in a frame":       {data: frames(func(*http2.Framer) {})[:5], close: true, want: ErrAgentDead},
		"goaway at once":       {data: frames(func(f *http2.Framer) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }), want: ErrProtocol},
		"headers on no stream": {data: frames(func(f *http2.Framer) { _ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 0, EndHeaders: true}) }), want: ErrProtocol},
		"a header bomb":        {data: frames(func(*http2.Framer) {}), then: headerBomb(), want: ErrProtocol},
		"data before headers": {data: frames(func(*http2.Framer) {}), then: raw(func(f *http2.Framer) {
			_ = f.WriteData(1, true, make([]byte, 100))
		}), want: ErrProtocol},
		"settings that are wrong": {data: frames(func(f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}), want: ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			host, guest := net.Pipe()
			defer guest.Close()
			asked := awaitCall(guest)
			go func() {
				_, _ = guest.Write(tt.data)
				if len(tt.then) > 0 {
					<-asked
					_, _ = guest.Write(tt.then)
				}
				if tt.close {
					guest.Close()
				}
			}()
			_, err := Dial(t.Context(), host, Options{HandshakeTimeout: 20 * time.Second})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// raw writes frames of a server that has sent its settings.
func raw(write func(*http2.Framer)) []byte { return frames(write)[9:] }

// headerBomb is one field that is repeated by reference: 12 KiB on the wire
// that would unpack to 32 MB.
func headerBomb() []byte {
	block := []byte{0x40, 1, 'a', 0x7f, 0xa1, 0x1e} // literal with indexing, a value of 4,000 bytes
	block = append(block, make([]byte, 4000)...)
	block = append(block, bytes.Repeat([]byte{0xbe}, 8000)...)
	return raw(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
	})
}

// awaitCall reads what the host sends to the end; the channel is closed when
// its first call has come, or when none will.
func awaitCall(guest io.Reader) <-chan struct{} {
	asked := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(asked) })
		defer once()
		if _, err := io.CopyN(io.Discard, guest, int64(len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(io.Discard, guest)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if frame.Header().Type == http2.FrameHeaders {
				once()
			}
		}
	}()
	return asked
}

func TestI11_GuestFloodsTakeNoMemory(t *testing.T) {
	// Not parallel: it measures this process's memory.
	c := dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
		if err := s.Send(started); err != nil {
			return err
		}
		chunk := &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: make([]byte, agentpb.ChunkBytes)}}
		for {
			if err := s.Send(chunk); err != nil {
				return err
			}
		}
	}})
	var n int
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := c.Exec(ctx, ExecOptions{Argv: []string{"flood"}, Stdout: writer(func(p []byte) (int, error) {
		if n += len(p); n > 64<<20 {
			cancel()
		}
		return len(p), nil
	})})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	grown := int64(math.MaxInt64)
	for end := time.Now().Add(10 * time.Second); grown > 8<<20 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var after runtime.MemStats // the fake agent, in this process too, may learn of the end a little later
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	if grown > 8<<20 {
		t.Errorf("64 MiB of output left %d bytes behind", grown)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestFailedWritersEndTheirExec(t *testing.T) {
	t.Parallel()
	c := dialFake(t, &fakeAgent{
		exec: func(s agentpb.Agent_ExecServer) error {
			for _, m := range []*agentpb.ExecResponse{started, output, exit(&agentpb.Exit{})} {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		},
		stats: func() (*agentpb.StatsResponse, error) { return &agentpb.StatsResponse{}, nil },
	})
	broken := errors.New("broken pipe")
	_, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"x"}, Stdout: writer(func([]byte) (int, error) { return 0, broken })})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Stats(t.Context()); err != nil {
		t.Errorf("the session is gone: %v", err)
	}
}
