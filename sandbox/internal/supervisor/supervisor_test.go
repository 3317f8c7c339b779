package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// guestVM is a backend, its one machine and the agent in it, without a guest.
type guestVM struct {
	agentpb.UnimplementedAgentServer
	refuse    error // of the handshake
	dead      bool  // the machine ends before its agent answers
	end       error // of the machine
	last      string
	spec      vm.Spec
	host, far net.Conn
	greeting  *agentpb.HandshakeRequest
	done      chan struct{}
	over      sync.Once
	shutdowns int
	paused    atomic.Bool   // its machine is
	behind    *atomic.Int64 // nanoseconds, of its clock; nil: it has no numbers
	stats     func()        // is called when it is asked for its numbers; nil for none
	did       func(string)  // is told what the guest does; nil: it has no files and runs nothing
	shared    net.Conn      // the port for directories; nil for one that has ended
	sharing   agentpb.DirectoriesServer
	network   bool     // the guest's end of its link is kept
	link      net.Conn // that end
	copied    bool     // its machine is a copy of a saved one
	hide      func() error
	boots     chan struct{} // is closed when it is greeted, which it never answers; nil: it answers
}

func (*guestVM) Name() string                    { return "fake" }
func (*guestVM) Probe(context.Context) vm.Report { return vm.Report{} }
func (g *guestVM) Agent() vm.Conn                { return g.host }
func (*guestVM) PID() int                        { return os.Getpid() }
func (g *guestVM) ConsoleTail(n int) string      { return g.last[max(0, len(g.last)-n):] }
func (*guestVM) Confinement() []string           { return []string{"nothing"} }
func (g *guestVM) Restored() bool                { return g.copied }
func (g *guestVM) Done() <-chan struct{}         { return g.done }
func (g *guestVM) Pause() error                  { g.paused.Store(true); return nil }
func (g *guestVM) Resume() error                 { g.paused.Store(false); return nil }
func (g *guestVM) Kill() error                   { g.gone(); return nil }
func (g *guestVM) gone() {
	g.over.Do(func() {
		close(g.done)
		_ = g.far.Close()
		if g.shared != nil {
			_ = g.shared.Close()
		}
	})
}

func (g *guestVM) Directories() vm.Conn {
	if g.shared != nil {
		return g.shared
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near
}

func (g *guestVM) Start(_ context.Context, spec vm.Spec) (vm.Machine, error) {
	g.spec = spec
	if spec.Net != nil && g.network {
		var err error
		if g.link, err = net.FileConn(spec.Net.FD); err != nil {
			return nil, err
		}
	}
	if spec.Net != nil {
		_ = spec.Net.FD.Close()
	}
	if g.dead {
		g.gone()
	}
	return g, nil
}

func (g *guestVM) Wait(ctx context.Context) error {
	select {
	case <-g.done:
		return g.end
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *guestVM) Handshake(ctx context.Context, r *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	g.greeting = r
	if g.boots != nil {
		close(g.boots)
		<-ctx.Done()
	}
	answer := &agentpb.HandshakeResponse{Version: agentpb.MaxVersion, Kernel: "6.0-test", Warnings: []string{"a warning"}}
	if g.behind != nil {
		answer.ClockUnixNs = time.Now().UnixNano() - g.behind.Load()
	}
	return answer, g.refuse
}

func (g *guestVM) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	if g.behind == nil {
		return nil, grpcstatus.Error(codes.Unimplemented, "no numbers")
	}
	if g.stats != nil {
		g.stats()
	}
	return &agentpb.StatsResponse{ClockUnixNs: time.Now().UnixNano() - g.behind.Load()}, nil
}

func (g *guestVM) SetClock(_ context.Context, r *agentpb.SetClockRequest) (*agentpb.SetClockResponse, error) {
	g.behind.Store(time.Now().UnixNano() - r.GetClockUnixNs())
	return &agentpb.SetClockResponse{}, nil
}

func (g *guestVM) Shutdown(context.Context, *agentpb.ShutdownRequest) (*agentpb.ShutdownResponse, error) {
	g.shutdowns++
	if g.did != nil {
		g.did("shut down")
	}
	go g.gone() // after the reply, as a guest's power is
	return &agentpb.ShutdownResponse{}, nil
}

// supervised is a supervisor in this process.
type supervised struct {
	*supervisor
	guest  *guestVM
	caller net.Conn
	status chan state.StatusLine
	ended  chan error
}

// superviseFake starts a supervisor; Ready has been taken when it returns, if it comes.
func superviseFake(t *testing.T, g *guestVM, p *state.Plan, change ...func(*supervisor)) (*supervised, *state.Info) {
	t.Helper()
	g.host, g.far = net.Pipe()
	g.done = make(chan struct{})
	srv := grpc.NewServer()
	agentpb.RegisterAgentServer(srv, g)
	if g.did != nil {
		agentpb.RegisterFilesServer(srv, guestFiles{did: g.did})
	}
	if g.sharing != nil {
		agentpb.RegisterDirectoriesServer(srv, g.sharing)
	}
	go func() { _ = srv.Serve(handoff.Of(g.far)) }()
	control, caller := net.Pipe()
	r, w := io.Pipe()
	s := &supervised{newSupervisor(p, state.NewStatusLines(w), control), g, caller, make(chan state.StatusLine, 100), make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	for _, do := range change {
		do(s.supervisor)
	}
	over := make(chan struct{})
	t.Cleanup(func() { g.gone(); srv.Stop(); _ = caller.Close(); <-over }) // its directory is about to be removed
	go func() {
		defer close(over)
		choose := func() error { s.backend = g; return nil }
		hide := g.hide
		if hide == nil {
			hide = func() error { return nil }
		}
		s.ended <- s.live(choose, hide)
		_ = w.Close()
	}()
	ready := make(chan *state.Info, 1)
	go func() {
		defer close(ready)
		for d := json.NewDecoder(r); ; {
			var line state.StatusLine
			if d.Decode(&line) != nil {
				return
			}
			if line.Ready != nil {
				ready <- line.Ready
				continue
			}
			s.status <- line
		}
	}()
	info := <-ready
	if info != nil {
		client, err := agentclient.Attach(caller)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		if _, err := client.Stats(t.Context()); (err == nil) != (g.behind != nil) { // the proxy waits for a caller's first bytes
			t.Errorf("a guest without numbers gives some, or one with numbers none: %v", err)
		}
	}
	return s, info
}

// newPlan is that of a sandbox in home, whose directory it makes.
func newPlan(t *testing.T, home, name string) *state.Plan {
	t.Helper()
	p := &state.Plan{
		Spec: state.Spec{Name: name, Policy: "version = 1\n", PolicyName: "p.toml", CPUs: 2, Memory: 512 << 20, NoNet: true, Hostname: "box", Env: []string{"LAST=caller"}},
		ID:   name, Home: home, AgentDisk: "/agent", ImageDisk: "/image", Image: image.Config{Env: []string{"FIRST=image"}},
	}
	if name != "" {
		p.Dir = newNamed(t, home, name)
	} else {
		must(t, os.MkdirAll(filepath.Join(home, state.RunsDir), 0o700))
		dir, err := os.MkdirTemp(filepath.Join(home, state.RunsDir), "sb-")
		must(t, err)
		p.ID, p.Dir = filepath.Base(dir), dir
	}
	p.Audit = filepath.Join(p.Dir, state.AuditLog)
	return p
}

// newNamed makes the directory of a sandbox with a name.
func newNamed(t *testing.T, home, name string) string {
	t.Helper()
	dir := filepath.Join(home, state.NamedDir, name)
	must(t, os.MkdirAll(dir, 0o700))
	must(t, state.WriteJSON(dir, state.StoredFile, state.Stored{Version: state.StoredVersion, Spec: state.Spec{Name: name}}))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSupervisorsEndAsTheirSandboxesDo has the ends of a life, and what the caller and the next command find.
func TestSupervisorsEndAsTheirSandboxesDo(t *testing.T) {
	t.Parallel()
	crash := "boot\n" + strings.Repeat("x", 2000) + "\npanic: agentd\n" + strings.Repeat("y", 2000)
	for name, tc := range map[string]struct {
		guest  *guestVM
		change func(*state.Plan)
		then   func(*supervised) // once it is ready; nil if it never is
		is     error             // of the end
		says   string
		kind   state.Kind
	}{
		"the caller goes":    {&guestVM{}, nil, func(s *supervised) { s.cancel(errCallerGone) }, nil, "", ""},
		"the policy ends it": {&guestVM{}, nil, func(s *supervised) { s.cancel(fmt.Errorf("%w: a violation", state.ErrTerminated)) }, state.ErrTerminated, "a violation", state.KindOf(state.ErrTerminated)},
		"the guest panics":   {&guestVM{end: vm.ErrGuestPanic}, nil, func(s *supervised) { s.guest.gone() }, vm.ErrGuestPanic, "", state.KindGuestPanic},
		"the guest leaves":   {&guestVM{last: "bye\r\n"}, nil, func(s *supervised) { s.guest.gone() }, agentclient.ErrAgentDead, "left its machine", state.KindAgent},
		"the stream ends":    {&guestVM{last: "the end"}, nil, func(s *supervised) { _ = s.guest.far.Close() }, agentclient.ErrAgentDead, "console ends:\nthe end", state.KindAgent},
		"the agent crashes":  {&guestVM{last: crash}, nil, func(s *supervised) { _ = s.guest.far.Close() }, agentclient.ErrAgentDead, "crashed:\npanic: agentd\n" + strings.Repeat("y", 1024-14), state.KindAgent},
		"it never answers":   {&guestVM{dead: true, end: vm.ErrGuestOutOfMemory}, nil, nil, vm.ErrGuestOutOfMemory, "", state.KindGuestMemory},
		"it refuses":         {&guestVM{refuse: grpcstatus.Error(codes.Internal, "no such disk"), last: strings.Repeat("z", 5000)}, nil, nil, agentclient.ErrProtocol, "no such disk", ""},
		"the policy is none": {&guestVM{}, func(p *state.Plan) { p.Policy = "x" }, nil, nil, "the policy as handed over", ""},
		"the floor is none":  {&guestVM{}, func(p *state.Plan) { p.Floor = "x" }, nil, nil, "floor as handed over", ""},
	} {
		for _, kept := range []string{"", "web"} {
			t.Run(name+" "+kept, func(t *testing.T) {
				t.Parallel()
				h := t.TempDir()
				p := newPlan(t, h, kept)
				if tc.change != nil {
					tc.change(p)
				}
				g := &guestVM{refuse: tc.guest.refuse, dead: tc.guest.dead, end: tc.guest.end, last: tc.guest.last}
				s, info := superviseFake(t, g, p)
				if (info != nil) != (tc.then != nil) {
					t.Fatalf("ready: %+v", info)
				}
				if tc.then != nil {
					if info.ID != p.ID || info.Backend != "fake" || info.Kernel != "6.0-test" || !slices.Equal(info.Warnings, []string{"a warning"}) || !slices.Equal(info.Confinement, []string{"nothing"}) {
						t.Errorf("%+v", info)
					}
					if _, err := os.Stat(filepath.Join(p.Dir, state.ControlSock)); (err == nil) != (kept != "") {
						t.Errorf("control socket: %v", err)
					}
					tc.then(s)
				}
				err := <-s.ended
				if good := tc.is == nil && tc.says == ""; good != (err == nil) || tc.is != nil && !errors.Is(err, tc.is) || err != nil && !strings.Contains(err.Error(), tc.says) || len(fmt.Sprint(err)) > 1500 {
					t.Errorf("ended with %v, want %v that says %q", err, tc.is, tc.says)
				}
				if tc.kind != "" && state.KindOf(err) != tc.kind {
					t.Errorf("of kind %q, want %q", state.KindOf(err), tc.kind)
				}
				if g.done != nil && g.spec.CPUs != 0 {
					<-g.done // no machine stays
				}
				if kept == "" {
					if _, err := os.Stat(p.Dir); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("the run's directory: %v", err)
					}
					return
				}
				for _, file := range []string{state.InfoFile, state.ControlSock} {
					if _, err := os.Lstat(filepath.Join(p.Dir, file)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s is left: %v", file, err)
					}
				}
				var e state.End
				b, readErr := os.ReadFile(filepath.Join(p.Dir, state.EndFile))
				if tc.then == nil {
					if readErr == nil {
						t.Errorf("it never ran, and ended: %s", b)
					}
					return
				}
				must(t, readErr)
				must(t, json.Unmarshal(b, &e))
				if e.Time.IsZero() || e.Kind != tc.kind || err != nil && e.Message != err.Error() || err == nil && e.Message != "" {
					t.Errorf("end.json says %+v, want %q of %v", e, tc.kind, err)
				}
			})
		}
	}
}

// TestSupervisorsConfigureTheGuest looks at what the machine is started with and what its agent is told.
func TestSupervisorsConfigureTheGuest(t *testing.T) {
	t.Parallel()
	const policy = "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.TOKEN]\nfrom = \"file:%s\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	var placeholder string
	var authority []byte
	h := t.TempDir()
	value := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(value, []byte("a-value-that-is-long-enough"), 0o600))
	named := newPlan(t, h, "web")
	for i, tc := range []struct{ net, disk, proxy, named bool }{
		{}, {net: true}, {disk: true}, {net: true, proxy: true}, {net: true, disk: true, named: true}, {net: true, disk: true, named: true},
	} {
		p := named
		if !tc.named {
			p = newPlan(t, h, "")
		}
		p.Policy, p.NoNet, p.HTTPProxy = fmt.Sprintf(policy, value), !tc.net, tc.proxy
		if tc.disk {
			p.UpperDisk = "/upper"
		}
		g := &guestVM{}
		s, info := superviseFake(t, g, p)
		if info == nil {
			t.Fatal(<-s.ended)
		}
		s.cancel(errCallerGone)
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
		disks := []vm.Disk{{Path: "/agent", ReadOnly: true, ID: serialAgent}, {Path: "/image", ReadOnly: true, ID: serialImage}}
		if tc.disk {
			disks = append(disks, vm.Disk{Path: "/upper", ID: serialUpper})
		}
		disks = append(disks, vm.Disk{Path: filepath.Join(p.Dir, state.TransferDisk), ID: serialTransfer})
		if g.spec.CPUs != 2 || g.spec.MemoryMiB != 512 || !slices.Equal(g.spec.Disks, disks) || g.spec.ConsoleLog != filepath.Join(p.Dir, state.ConsoleLog) || (g.spec.Net != nil) != tc.net {
			t.Errorf("%d: started with %+v", i, g.spec)
		}
		r, root := g.greeting, g.greeting.GetRoot()
		if r.GetHostname() != "box" || root.GetImage().GetSerial() != serialImage || root.GetImage().GetDevice() != "vdb" || (root.GetUpperDisk() != nil) != tc.disk ||
			tc.disk && (root.GetUpperDisk().GetSerial() != serialUpper || root.GetUpperDisk().GetDevice() != "vdc") || (len(r.GetTrust().GetCaPem()) > 0) != tc.net || r.GetTrust().GetSetEnv() != tc.net {
			t.Errorf("%d: the agent was told %v", i, r)
		}
		env := r.GetEnv()
		has := func(name string) (value string) {
			for _, e := range env {
				if n, v, _ := strings.Cut(e, "="); n == name {
					value = v
				}
			}
			return value
		}
		if env[0] != "FIRST=image" || env[len(env)-1] != "LAST=caller" || has("MSB_SANDBOX") != p.ID || has("MSB_BACKEND") != "fake" ||
			has("TOKEN") != info.Placeholders["TOKEN"] || (has("TOKEN") != "") != tc.net || (has("https_proxy") != "") != tc.proxy || has("HTTP_PROXY") != has("http_proxy") {
			t.Errorf("%d: the agent's environment is %q", i, env)
		}
		if n := r.GetNetwork(); (n != nil) != tc.net || tc.net && (string(n.GetMac()) != string(g.spec.Net.MAC) || n.GetMac()[0]&3 != 2 || len(n.GetAddresses()) != 2 || len(n.GetGateways()) != 2 ||
			len(n.GetDnsServers()) != 1 || n.GetDnsServers()[0] != n.GetGateways()[0] || n.GetMtu() == 0) {
			t.Errorf("%d: the agent's network is %v", i, n)
		}
		if want := map[bool]int{true: 1}[tc.named]; g.shutdowns != want {
			t.Errorf("%d: the guest was asked %d times to write back, want %d", i, g.shutdowns, want)
		}
		if !tc.named {
			continue
		}
		// A later life has the placeholders and the authority of the one before.
		if placeholder != "" && (has("TOKEN") != placeholder || string(r.GetTrust().GetCaPem()) != string(authority)) {
			t.Errorf("%d: placeholder %q, was %q; the authority is the same: %t", i, has("TOKEN"), placeholder, string(r.GetTrust().GetCaPem()) == string(authority))
		}
		placeholder, authority = has("TOKEN"), r.GetTrust().GetCaPem()
	}
	if b, err := os.ReadFile(named.Audit); err != nil || strings.Count(string(b), `"sandbox.start"`) != 2 || strings.Count(string(b), `"sandbox.stop"`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}

// eventKinds is a sink that keeps the kinds.
type eventKinds []audit.Kind

func (h *eventKinds) Emit(e audit.Event) { *h = append(*h, e.Kind) }

// TestI1_ReloadsAreReportedOnce: a foreground caller gets a line, who asks of a named sandbox its last refusal.
func TestI1_ReloadsAreReportedOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "web"} {
		var told strings.Builder
		var kinds eventKinds
		s := newSupervisor(newPlan(t, t.TempDir(), name), state.NewStatusLines(&told), nil)
		sink := reloads{&kinds, s}
		sent := []audit.Event{{Kind: audit.SandboxStart, Message: "start"}, {Kind: audit.PolicyReload, Action: "deny", Message: "refused"}, {Kind: audit.PolicyReload, Action: "allow", Message: "taken"}}
		for i, e := range sent {
			sink.Emit(e)
			if refused := s.named.record.PolicyRefused; (refused == "refused") != (i == 1 && name != "") || refused != "" && i != 1 {
				t.Errorf("%q: after %s the last refusal is %q", name, e.Message, refused)
			}
		}
		if len(kinds) != len(sent) {
			t.Errorf("%q: %v of %d events went on", name, kinds, len(sent))
		}
		if want := map[bool]string{true: "{\"notice\":\"refused\"}\n{\"notice\":\"taken\"}\n"}[name == ""]; told.String() != want {
			t.Errorf("%q: the caller got %q, want %q", name, told.String(), want)
		}
	}
}
