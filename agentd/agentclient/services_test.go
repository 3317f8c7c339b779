package agentclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
)

// serving is a client of Serve with these services.
func serving(t *testing.T, guest *Client, also Services) *Client {
	t.Helper()
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, handoff.Of(a), guest, also) }()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); end(); <-served })
	return c
}

// fixedSupervisor has figures, and an error for changes.
type fixedSupervisor struct {
	usage   any
	err     error
	changes []string
}

func (f *fixedSupervisor) Usage(context.Context) any { return f.usage }
func (f *fixedSupervisor) Update(changes []byte) error {
	f.changes = append(f.changes, string(changes))
	return f.err
}

// fixedPorts publishes what it is asked for.
type fixedPorts struct{ err error }

func (f *fixedPorts) AddPort(port string) (string, error) { return "127.0.0.1:" + port, f.err }
func (f *fixedPorts) RemovePort(port string) ([]string, error) {
	return []string{"127.0.0.1:" + port, "[::1]:" + port}, f.err
}

// fixedJobs removes every job, and does nothing else.
type fixedJobs struct {
	JobServer
	removed atomic.Int32
}

func (f *fixedJobs) RemoveJob(context.Context, JobID) error { f.removed.Add(1); return nil }
func (f *fixedJobs) SignalJob(context.Context, JobID, Signal) error {
	return nil
}

// TestPortsAreThoseOfTheSupervisor: what it answers comes to the client, with its errors as they are.
func TestPortsAreThoseOfTheSupervisor(t *testing.T) {
	t.Parallel()
	ports := &fixedPorts{}
	c := serving(t, dialFake(t, &fakeAgent{}), Services{Ports: ports})
	if got, err := c.AddPort(t.Context(), "8080:80"); err != nil || got != "127.0.0.1:8080:80" {
		t.Errorf("added %q, %v", got, err)
	}
	if got, err := c.RemovePort(t.Context(), "80"); err != nil || !slices.Equal(got, []string{"127.0.0.1:80", "[::1]:80"}) {
		t.Errorf("removed %q, %v", got, err)
	}
	ports.err = errors.New("port 80 is taken\x1b")
	_, add := c.AddPort(t.Context(), "80")
	_, remove := c.RemovePort(t.Context(), "80")
	for _, err := range []error{add, remove} {
		if !errors.Is(err, ErrPort) || err.Error() != "port 80 is taken?" {
			t.Errorf("got %v, want ErrPort with the supervisor's words", err)
		}
	}
	if c.Err() != nil {
		t.Errorf("the session ended: %v", c.Err())
	}
}

// manyPorts answers with another number of ports than were asked for.
type manyPorts struct {
	agentpb.UnimplementedPortsServer
	ports []string
}

func (m *manyPorts) AddPort(context.Context, *agentpb.PortRequest) (*agentpb.PortResponse, error) {
	return &agentpb.PortResponse{Ports: m.ports}, nil
}

// dialServices is a session with a guest that has these services beside the agent's own.
func dialServices(t *testing.T, register func(*grpc.Server)) *Client {
	t.Helper()
	host, guest := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conns <- guest
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, &fakeAgent{})
	register(srv)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() { close(l.done); srv.Stop(); <-served })
	c, err := Dial(t.Context(), host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestI12_OnePortIsAddedAtATime: another answer is a broken protocol, and no index out of range.
func TestI12_OnePortIsAddedAtATime(t *testing.T) {
	t.Parallel()
	for _, ports := range [][]string{nil, {"80", "81"}, {"80"}} {
		c := dialServices(t, func(s *grpc.Server) { agentpb.RegisterPortsServer(s, &manyPorts{ports: ports}) })
		if got, err := c.AddPort(t.Context(), "80"); errors.Is(err, ErrProtocol) == (len(ports) == 1) || err == nil && got != "80" {
			t.Errorf("%q: %q, %v", ports, got, err)
		}
	}
}

// TestSupervisorsAnswer with figures and changes; what is not theirs, or too much, is an error.
func TestSupervisorsAnswer(t *testing.T) {
	t.Parallel()
	type figures struct{ N int }
	s := &fixedSupervisor{usage: figures{7}}
	c := serving(t, dialFake(t, &fakeAgent{}), Services{Supervisor: s})
	var got figures
	if err := c.Usage(t.Context(), &got); err != nil || got.N != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.Update(t.Context(), []byte("{}")); err != nil || !slices.Equal(s.changes, []string{"{}"}) {
		t.Errorf("%q, %v", s.changes, err)
	}
	s.err = errors.New("no such limit\x1b")
	if err := c.Update(t.Context(), []byte("{}")); !errors.Is(err, errUpdate) || !strings.HasSuffix(err.Error(), "no such limit?") {
		t.Errorf("a change that is refused: %v", err)
	}
	s.usage = "no number"
	if err := c.Usage(t.Context(), &got); !errors.Is(err, ErrProtocol) {
		t.Errorf("other figures: %v, want ErrProtocol", err)
	}
	const most = 64<<10 - 2 // and two quotation marks
	for size, want := range map[int]error{most: nil, most + 1: ErrProtocol} {
		s.usage = strings.Repeat("x", size)
		if err := c.Usage(t.Context(), new(string)); !errors.Is(err, want) {
			t.Errorf("figures of %d bytes: %v, want %v", size, err, want)
		}
	}
	old := serving(t, dialFake(t, &fakeAgent{}), Services{}) // which knows neither call
	for what, err := range map[string]error{"figures": old.Usage(t.Context(), &got), "a change": old.Update(t.Context(), nil)} {
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "older msb") {
			t.Errorf("%s of an old supervisor: %v", what, err)
		}
	}
}

// TestMonitoringIsNoUse: each kind of figures is asked for again and again. The twins are calls that are uses.
func TestMonitoringIsNoUse(t *testing.T) {
	t.Parallel()
	var uses atomic.Int32
	jobs := &fixedJobs{}
	guest := dialFake(t, &fakeAgent{stats: func() (*agentpb.StatsResponse, error) { return &agentpb.StatsResponse{}, nil }})
	c := serving(t, guest, Services{
		Supervisor: &fixedSupervisor{usage: 1}, Ports: &fixedPorts{}, Jobs: jobs, Use: func() func() { uses.Add(1); return func() {} },
	})
	for what, call := range map[string]struct {
		do   func() error
		used bool
	}{
		"the guest's figures": {func() error { _, err := c.Stats(t.Context()); return err }, false},
		"the supervisor's":    {func() error { return c.Usage(t.Context(), new(int)) }, false},
		"a container's, of none": {func() error {
			_, err := c.containers.Stats(t.Context(), &agentpb.ContainerStatsRequest{})
			_ = err
			return nil
		}, false},
		"a change":                 {func() error { return c.Update(t.Context(), nil) }, true},
		"a port":                   {func() error { _, err := c.AddPort(t.Context(), "80"); return err }, true},
		"a signal to a job":        {func() error { return c.SignalJob(t.Context(), JobID{Name: "a"}, SIGTERM) }, true},
		"a job that is taken away": {func() error { return c.RemoveJob(t.Context(), JobID{Name: "a"}) }, true},
	} {
		before := uses.Load()
		if err := call.do(); err != nil || (uses.Load() > before) != call.used {
			t.Errorf("%s: %v, a use %v", what, err, !call.used)
		}
	}
}

// TestPausedSupervisorsGoOn: what needs no guest is answered while the guest is paused. The twin needs it.
func TestPausedSupervisorsGoOn(t *testing.T) {
	t.Parallel()
	jobs := &fixedJobs{}
	c := serving(t, dialFake(t, &fakeAgent{}), Services{
		Supervisor: &fixedSupervisor{usage: 1}, Ports: &fixedPorts{}, Jobs: jobs, Refuse: func() error { return ErrPaused },
	})
	for what, call := range map[string]struct {
		do   func() error
		want error
	}{
		"figures":           {func() error { return c.Usage(t.Context(), new(int)) }, nil},
		"a change":          {func() error { return c.Update(t.Context(), nil) }, nil},
		"a port":            {func() error { _, err := c.AddPort(t.Context(), "80"); return err }, nil},
		"a port's end":      {func() error { _, err := c.RemovePort(t.Context(), "80"); return err }, nil},
		"a job's removal":   {func() error { return c.RemoveJob(t.Context(), JobID{Name: "a"}) }, nil},
		"a signal to a job": {func() error { return c.SignalJob(t.Context(), JobID{Name: "a"}, SIGTERM) }, ErrPaused},
		"a forward": {func() error {
			_, err := c.Connect(t.Context(), netip.MustParseAddrPort("127.0.0.1:80"))
			return err
		}, ErrPaused},
	} {
		if err := call.do(); !errors.Is(err, call.want) {
			t.Errorf("%s: %v, want %v", what, err, call.want)
		}
	}
	if n := jobs.removed.Load(); n != 1 {
		t.Errorf("%d jobs were removed", n)
	}
}

// TestFiguresOfGuestsAreTakenOver: each is another number, so that none stands in another's place.
func TestFiguresOfGuestsAreTakenOver(t *testing.T) {
	t.Parallel()
	c := dialFake(t, &fakeAgent{stats: func() (*agentpb.StatsResponse, error) {
		return &agentpb.StatsResponse{
			MemoryTotalBytes: 1, MemoryAvailableBytes: 2, UptimeNs: 3, CpuBusyNs: 4, Processes: 5, Execs: 6, MaxExecs: 7, OomKills: 8,
			ClockUnixNs: 9, RootTotalBytes: 10, RootAvailableBytes: 11,
		}, nil
	}})
	want := Stats{
		MemoryTotalBytes: 1, MemoryAvailableBytes: 2, Uptime: 3, CPUBusy: 4, Processes: 5, Execs: 6, MaxExecs: 7, OOMKills: 8,
		Clock: time.Unix(0, 9), RootTotalBytes: 10, RootAvailableBytes: 11,
	}
	if got, err := c.Stats(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for v, i := reflect.ValueOf(want), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not compared", v.Type().Field(i).Name)
		}
	}
}

// fakeLoopback forwards to a port.
type fakeLoopback struct {
	agentpb.UnimplementedLoopbackServer
	port  uint32
	asked *agentpb.ForwardRequest
}

func (f *fakeLoopback) Forward(_ context.Context, r *agentpb.ForwardRequest) (*agentpb.ForwardResponse, error) {
	f.asked = r
	return &agentpb.ForwardResponse{Port: f.port}, nil
}

// TestI12_ForwardsHavePorts: one that is out of range, or would be cut to another, ends the session.
func TestI12_ForwardsHavePorts(t *testing.T) {
	t.Parallel()
	listen, from := netip.MustParseAddr("192.168.127.2"), netip.MustParseAddr("192.168.127.1")
	for port, ok := range map[uint32]bool{0: false, 1: true, 65535: true, 65536: false, 65536 + 80: false} {
		f := &fakeLoopback{port: port}
		c := dialServices(t, func(s *grpc.Server) { agentpb.RegisterLoopbackServer(s, f) })
		got, err := c.ForwardLoopback(t.Context(), true, 53, listen, from)
		if ok != (err == nil) || ok && uint32(got) != port || !ok && (!errors.Is(err, ErrProtocol) || c.Err() == nil) {
			t.Errorf("%d: %d, %v, the session %v", port, got, err, c.Err())
		}
		if a, _ := netip.AddrFromSlice(f.asked.GetListen()); !f.asked.GetUdp() || f.asked.GetPort() != 53 || a != listen || !slices.Equal(f.asked.GetFrom(), from.AsSlice()) {
			t.Errorf("the guest was asked for %v", f.asked)
		}
	}
}

// fakeFreezer answers the first request, and the end of all, or doesn't.
type fakeFreezer struct {
	agentpb.UnimplementedFreezerServer
	begins, ends bool
	limit        time.Duration
}

func (f *fakeFreezer) Freeze(s grpc.BidiStreamingServer[agentpb.FreezeRequest, agentpb.FreezeResponse]) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	f.limit = time.Duration(r.GetLimitNs())
	if f.begins {
		if err := s.Send(&agentpb.FreezeResponse{}); err != nil {
			return err
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			return status.Error(codes.Aborted, "no end")
		}
	}
	if f.ends {
		return s.Send(&agentpb.FreezeResponse{})
	}
	return nil
}

// TestI12_GuestsThatSkipAThawAreRefused: a copy is good only if the guest says that the disk was held to the end.
func TestI12_GuestsThatSkipAThawAreRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		f            fakeFreezer
		begins, ends bool
	}{
		"good": {fakeFreezer{begins: true, ends: true}, true, true}, "no end": {fakeFreezer{begins: true}, true, false}, "no begin": {fakeFreezer{}, false, false},
	} {
		client := dialServices(t, func(s *grpc.Server) { agentpb.RegisterFreezerServer(s, &c.f) })
		frozen, err := client.Freeze(t.Context(), 20*time.Second)
		if (err == nil) != c.begins || c.f.limit != 20*time.Second {
			t.Errorf("%s: %v, for %v", what, err, c.f.limit)
		}
		if err != nil {
			continue
		}
		if err := frozen.Thaw(); (err == nil) != c.ends || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// fakeListens says where it listens and what it accepted; of these connections it gives out those with an even number.
type fakeListens struct {
	fakeConnections
	first    *agentpb.Listening
	accepted []*agentpb.Accepted
}

func (f *fakeListens) Listen(_ *agentpb.ListenRequest, s grpc.ServerStreamingServer[agentpb.ListenResponse]) error {
	if err := s.Send(&agentpb.ListenResponse{Response: &agentpb.ListenResponse_Listening{Listening: f.first}}); err != nil {
		return err
	}
	for _, a := range f.accepted {
		if err := s.Send(&agentpb.ListenResponse{Response: &agentpb.ListenResponse_Accepted{Accepted: a}}); err != nil {
			return err
		}
	}
	<-s.Context().Done()
	return nil
}

func (f *fakeListens) Connect(s grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	r, err := s.Recv()
	if err != nil {
		return err
	}
	if r.GetStart().GetAccepted()%2 != 0 {
		return status.Error(codes.InvalidArgument, "it has ended")
	}
	return f.fakeConnections.Connect(s)
}

// TestI12_ListenersAreWhereTheyWereAsked: a path goes into the environment of programs, and a port is told to the client.
func TestI12_ListenersAreWhereTheyWereAsked(t *testing.T) {
	t.Parallel()
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	for _, c := range []struct {
		o     ListenOptions
		first *agentpb.Listening
		ok    bool
	}{
		{ListenOptions{Back: BackReverse, At: at(0)}, &agentpb.Listening{Port: 5000}, true},
		{ListenOptions{Back: BackReverse, At: at(22)}, &agentpb.Listening{Port: 22}, true},
		{ListenOptions{Back: BackReverse, At: at(22)}, &agentpb.Listening{Port: 23}, false},
		{ListenOptions{Back: BackReverse, At: at(0)}, &agentpb.Listening{}, false},
		{ListenOptions{Back: BackReverse, At: at(0)}, &agentpb.Listening{Port: 1<<16 + 22}, false},
		{ListenOptions{Back: BackX11, At: at(0)}, &agentpb.Listening{Port: 6010, Path: "/tmp/x"}, false},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "/tmp/ssh-1/agent"}, true},
		{ListenOptions{Back: BackChildren}, &agentpb.Listening{Path: "/run/msb/children"}, true},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "agent"}, false},
		{ListenOptions{Back: BackChildren}, &agentpb.Listening{Path: "children"}, false},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "/a\x00b"}, false},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "/tmp/ssh-1/agent", Port: 22}, false},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "/" + strings.Repeat("x", 106)}, true},
		{ListenOptions{Back: BackAgent}, &agentpb.Listening{Path: "/" + strings.Repeat("x", 107)}, false},
		{ListenOptions{Back: BackAgent}, nil, false},
	} {
		client := dialServices(t, func(s *grpc.Server) { agentpb.RegisterConnectionsServer(s, &fakeListens{first: c.first}) })
		l, err := client.Listen(t.Context(), c.o)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, ErrProtocol) || client.Err() == nil) {
			t.Errorf("%+v at %v: %v, the session %v", c.o, c.first, err, client.Err())
		}
		if err == nil && (l.Path != c.first.GetPath() || uint32(l.Port) != c.first.GetPort()) {
			t.Errorf("%+v at %v: %+v", c.o, c.first, l)
		}
	}
}

// TestListenersPassOverConnectionsThatEnded, and a guest that accepts nothing ends the session.
func TestListenersPassOverConnectionsThatEnded(t *testing.T) {
	t.Parallel()
	connected := &agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Connected{Connected: &agentpb.Connected{}}}
	eof := &agentpb.ConnectResponse{Response: &agentpb.ConnectResponse_Eof{Eof: &agentpb.ConnectEOF{}}}
	f := &fakeListens{first: &agentpb.Listening{Port: 5000}, accepted: []*agentpb.Accepted{{Id: 1}, {Id: 2, Address: "127.0.0.1", Port: 1234}, {Id: 4, Address: "\x1b"}, {Id: 6, Address: "fe80::1%\x1b[2J", Port: 1}, {}}}
	f.say = []*agentpb.ConnectResponse{connected, eof}
	c := dialServices(t, func(s *grpc.Server) { agentpb.RegisterConnectionsServer(s, f) })
	l, err := c.Listen(t.Context(), ListenOptions{Back: BackReverse, At: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"127.0.0.1:1234", "invalid AddrPort", "[fe80::1]:1"} {
		conn, from, err := l.Accept()
		if err != nil || from.String() != want {
			t.Fatalf("from %s, %v, want %s", from, err, want)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection: %v", err)
		}
	}
	if _, _, err := l.Accept(); !errors.Is(err, ErrProtocol) || !errors.Is(c.Err(), ErrProtocol) {
		t.Errorf("a connection without a number: %v, the session %v", err, c.Err())
	}
}

// TestSSHEndsAsItsServerDoes: the session's end is that to the client too, an error has the server's words, and bytes that the client
// can't write end it.
func TestSSHEndsAsItsServerDoes(t *testing.T) {
	t.Parallel()
	full := errors.New("the pipe is broken")
	for what, c := range map[string]struct {
		end  error
		out  io.Writer
		want func(error) bool
	}{
		"orderly":            {nil, io.Discard, func(err error) bool { return err == nil }},
		"the session's end":  {ErrClosed, io.Discard, func(err error) bool { return errors.Is(err, ErrAgentDead) }},
		"an error":           {errors.New("no key\x1b"), io.Discard, func(err error) bool { return err != nil && err.Error() == "no key?" }},
		"a client that left": {nil, writerFunc(func([]byte) (int, error) { return 0, full }), func(err error) bool { return errors.Is(err, full) }},
	} {
		client := serving(t, dialFake(t, &fakeAgent{}), Services{Supervisor: figures{}, SSH: func(conn io.ReadWriteCloser, _ func(string)) error {
			_, err := io.WriteString(conn, "SSH-2.0-msb\r\n")
			return errors.Join(err, c.end)
		}})
		in, write := io.Pipe()
		err := client.SSH(t.Context(), in, c.out, func(string) {})
		if _ = write.Close(); !c.want(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
