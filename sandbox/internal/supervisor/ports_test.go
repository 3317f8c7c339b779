package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestPortsListenOnLoopbackOnly listens at any port: at loopback addresses, at one number, and nowhere else.
func TestPortsListenOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	open, err := listenAt(context.Background(), t.TempDir(), state.Port{Guest: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer open.close()
	if open.Host == 0 || len(open.listeners) == 0 {
		t.Fatalf("%+v", open)
	}
	for _, l := range open.listeners {
		a, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil || !a.Addr().IsLoopback() || a.Port() != open.Host {
			t.Errorf("it listens at %v (%v)", a, err)
		}
	}
}

// TestAskedAddressesAreNotLeftOut: a port at an address that this machine does not have is an error, and not a port that
// listens nowhere.
func TestAskedAddressesAreNotLeftOut(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, udp := range []bool{false, true} {
			open, err := listenAt(t.Context(), t.TempDir(), state.Port{Address: netip.MustParseAddr(address), Guest: 80, UDP: udp})
			if err == nil {
				open.close()
			}
			if !errors.Is(err, state.ErrPort) || !strings.Contains(err.Error(), address) {
				t.Errorf("%s, udp %t: %+v, %v; want ErrPort", address, udp, open, err)
			}
		}
	}
}

// TestIPv6PortsAreIPv6Alone: a port at [::] leaves IPv4's addresses to others.
func TestIPv6PortsAreIPv6Alone(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	try := func(udp bool) error {
		open, err := listenAt(t.Context(), t.TempDir(), state.Port{Address: netip.IPv6Unspecified(), Guest: 80, UDP: udp})
		if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Skip("no IPv6:", err)
		}
		must(t, err)
		defer open.close()
		at := fmt.Sprintf("0.0.0.0:%d", open.Host)
		if udp {
			c, err := lc.ListenPacket(t.Context(), "udp4", at)
			if err != nil {
				return err
			}
			return c.Close()
		}
		l, err := lc.Listen(t.Context(), "tcp4", at)
		if err != nil {
			return err
		}
		return l.Close()
	}
	for _, udp := range []bool{false, true} {
		err := try(udp)
		for n := 0; n < 5 && err != nil; n++ { // another program may have the port
			err = try(udp)
		}
		if err != nil {
			t.Errorf("udp %t: %v", udp, err)
		}
	}
}

// TestTakenUDPPortsNameTheirOwner, and a TCP port of the same number is another one.
func TestTakenUDPPortsNameTheirOwner(t *testing.T) {
	t.Parallel()
	open, err := listenAt(t.Context(), t.TempDir(), state.Port{Guest: 53, UDP: true})
	must(t, err)
	defer open.close()
	if len(open.sockets) == 0 || len(open.listeners) > 0 || open.Host == 0 {
		t.Fatalf("%+v", open)
	}
	_, err = listenAt(t.Context(), t.TempDir(), open.Port)
	if !errors.Is(err, state.ErrPort) || runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a taken port: %v", err)
	}
	if other := (state.Port{Host: open.Host, Guest: 53}); state.CheckPorts([]state.Port{open.Port, other}, false, policies.Default(), nil) != nil || open.Meant(other) {
		t.Error("TCP's port is taken for UDP's")
	}
}

// TestTakenPortsNameTheirOwner: the error says who holds the port, and nothing stays open.
func TestTakenPortsNameTheirOwner(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, port := net.Listener(nil), uint16(0)
	for l == nil { // until one is found that is free at IPv4's address, where another program may have it
		var err error
		if l, err = lc.Listen(t.Context(), "tcp", "[::1]:0"); err != nil {
			t.Skip("no IPv6:", err)
		}
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
		other, err := lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
		if err != nil {
			_ = l.Close()
			l = nil
			continue
		}
		_ = other.Close()
	}
	defer l.Close()
	first := netip.MustParseAddr("127.0.0.77") // where no other test listens
	free, err := lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(first, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	firstAt := netip.MustParseAddrPort(free.Addr().String())
	_ = free.Close()
	s := newSupervisor(&state.Plan{Spec: state.Spec{Ports: []state.Port{{Address: first, Host: firstAt.Port(), Guest: 81}, {Host: port, Guest: 80}}}}, nil, nil)
	s.ctx = t.Context()
	err = s.ports.openAll()
	if !errors.Is(err, state.ErrPort) || runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a taken port: %v", err)
	}
	if len(s.ports.open) != 0 {
		t.Errorf("%d ports are open still", len(s.ports.open))
	}
	// IPv4's was free, and that of the port before it; they must be again.
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), firstAt} {
		again, err := lc.Listen(t.Context(), "tcp", at.String())
		if err != nil {
			t.Errorf("%s: %v", at, err)
		} else {
			_ = again.Close()
		}
	}
}

// TestChosenPortsAreKept: the next start listens at the port that the first one chose, and another sandbox that wants it
// is told whose it is.
func TestChosenPortsAreKept(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	run := func(name string, p state.Port) (*supervised, *state.Info) {
		plan := newPlan(t, home, name)
		plan.NoNet, plan.Ports = false, []state.Port{p}
		return superviseFake(t, &guestVM{}, plan)
	}
	stop := func(s *supervised) {
		t.Helper()
		s.cancel(errCallerGone)
		must(t, <-s.ended)
	}
	s, info := run("web", state.Port{Guest: 80})
	if info == nil || len(info.Ports) != 1 || info.Ports[0].Host == 0 {
		t.Fatalf("%+v", info)
	}
	first := info.Ports[0]
	other, info := run("other", first)
	if err := <-other.ended; info != nil || !errors.Is(err, state.ErrPort) || !strings.Contains(err.Error(), "sandbox web holds it") {
		t.Errorf("a port of another sandbox: %v", err)
	}
	stop(s)
	st, err := state.ReadStored(s.plan.Dir, "web")
	must(t, err)
	if len(st.Ports) != 1 || st.Ports[0] != first {
		t.Errorf("%v is kept, want %v", st.Ports, first)
	}
	s, info = run("web", st.Ports[0])
	if info == nil || info.Ports[0] != first {
		t.Fatalf("the next run has %+v, want %v", info, first)
	}
	stop(s)
}

// TestPortsChangeWhileASandboxRuns adds and removes ports over the control socket. What is there afterwards is written
// down, and listened at.
func TestPortsChangeWhileASandboxRuns(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, t.TempDir(), "web")
	plan.NoNet = false
	s, info := superviseFake(t, &guestVM{}, plan)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	conn, err := state.DialControl(plan.Dir)
	must(t, err)
	client, err := agentclient.Attach(conn)
	must(t, err)
	defer func() { _ = client.Close() }()
	text, err := client.AddPort(t.Context(), "80")
	must(t, err)
	added, err := state.ParsePort(text)
	must(t, err)
	there := func(want ...state.Port) {
		t.Helper()
		st, err := state.ReadStored(plan.Dir, "web")
		must(t, err)
		var r state.RunRecord
		must(t, state.ReadJSON(plan.Dir, state.InfoFile, &r))
		if !slices.Equal(st.Ports, want) || !slices.Equal(r.Info.Ports, want) {
			t.Errorf("ports %v are stored and %v are told, want %v", st.Ports, r.Info.Ports, want)
		}
	}
	there(added)
	address := fmt.Sprintf("127.0.0.1:%d", added.Host)
	c, err := net.Dial("tcp", address)
	must(t, err)
	_ = c.Close()
	for text, want := range map[string]string{
		text: "two of them", "x": "HOSTPORT:PORT", "0.0.0.0:1:2": "lets none connect",
	} {
		if _, err := client.AddPort(t.Context(), text); !errors.Is(err, state.ErrPort) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is added: %v, want %q", text, err, want)
		}
	}
	if _, err := client.RemovePort(t.Context(), "81"); !errors.Is(err, state.ErrPort) || !strings.Contains(err.Error(), ": 81 is not published; `msb port ls "+s.plan.Name+"` ") {
		t.Errorf("a port that is none is removed: %v", err)
	}
	there(added)
	if removed, err := client.RemovePort(t.Context(), "80"); err != nil || !slices.Equal(removed, []string{text}) {
		t.Errorf("%v is removed, %v", removed, err)
	}
	there()
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the port is open still")
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestI15_PortsNeedTheFloor: what runs under a floor publishes nothing, later neither.
func TestI15_PortsNeedTheFloor(t *testing.T) {
	t.Parallel()
	for _, floor := range []string{"", "version = 1\n"} {
		s := newSupervisor(&state.Plan{}, nil, nil)
		s.ctx = t.Context()
		if floor != "" {
			s.floor = policies.Default()
		}
		err := state.CheckPorts([]state.Port{{Guest: 80}}, false, policies.Default(), s.floor)
		if refused := errors.Is(err, state.ErrPort); refused != (floor != "") {
			t.Errorf("floor %q: %v", floor, err)
		}
		if floor == "" {
			continue
		}
		if _, err := s.ports.AddPort("80"); !errors.Is(err, state.ErrPort) || len(s.ports.open) > 0 {
			t.Errorf("added under a floor: %v", err)
		}
	}
}

// TestI15_PortsAreNotStolen has a sandbox listen, and another ask for the same port at addresses that overlap its own: none
// of them gets a connection that is the first one's. The twin asks for another port.
func TestI15_PortsAreNotStolen(t *testing.T) {
	t.Parallel()
	addresses := []netip.Addr{{}, netip.MustParseAddr("0.0.0.0"), netip.IPv6Unspecified()}
	shared := func(a, b state.Port) bool {
		return slices.ContainsFunc(a.Addresses(), func(x netip.Addr) bool {
			return slices.ContainsFunc(b.Addresses(), func(y netip.Addr) bool { return x.Is4() == y.Is4() && overlap(x, y) })
		})
	}
	for _, udp := range []bool{false, true} {
		for _, owner := range addresses {
			held, err := listenAt(t.Context(), t.TempDir(), state.Port{Address: owner, Guest: 80, UDP: udp})
			if owner.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				continue
			}
			must(t, err)
			for _, thief := range addresses {
				wanted := state.Port{Address: thief, Host: held.Host, Guest: 80, UDP: udp}
				if !shared(held.Port, wanted) {
					continue
				}
				got, err := listenOnce(t.Context(), t.TempDir(), wanted)
				if !errors.Is(err, syscall.EADDRINUSE) || !errors.Is(err, state.ErrPort) {
					t.Errorf("%s beside %s: %v, want EADDRINUSE", wanted, held, err)
				}
				if err == nil {
					got.close()
				}
				wanted.Host = 0
				free, err := listenOnce(t.Context(), "", wanted)
				if err != nil && !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
					t.Errorf("%s, any port: %v", wanted, err)
				}
				if err == nil {
					free.close()
				}
			}
			held.close()
		}
	}
}

// TestGuestsThatAreNotReadyGetNoConnections: a client of a published port may come before the guest's agent.
func TestGuestsThatAreNotReadyGetNoConnections(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Dir: t.TempDir()}, nil, nil)
	if port, err := s.ports.forward(t.Context(), egress.TCP, 80); port != 0 || !errors.Is(err, errNotReady) {
		t.Errorf("%d, %v", port, err)
	}
}

// TestPortsLeadToTheirServers: a port that the sandbox started with and one that was added each lead to their own server in
// the guest.
func TestPortsLeadToTheirServers(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.Ports = []state.Port{{Guest: 8000}}
	n := superviseNet(t, p)
	text, err := n.ports.AddPort("8001")
	must(t, err)
	added, err := state.ParsePort(text)
	must(t, err)
	for _, guest := range []uint16{8000, 8001} {
		l, err := n.net.ListenTCP(guest)
		must(t, err)
		defer func() { _ = l.Close() }()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprint(c, guest)
				_ = c.Close()
			}
		}()
	}
	for _, open := range []state.Port{n.info.Ports[0], added} {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", open.Host))
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		got, err := io.ReadAll(c)
		if err != nil || string(got) != fmt.Sprint(open.Guest) {
			t.Errorf("%s leads to %q, %v", open, got, err)
		}
		_ = c.Close()
	}
	n.end(t)
}

// TestRemovedUDPPortsAreFree for other programs, while the sandbox runs.
func TestRemovedUDPPortsAreFree(t *testing.T) {
	t.Parallel()
	s := callable(t, t.TempDir(), "web", "version = 1\n")
	text, err := s.ports.AddPort(state.Port{Guest: 53, UDP: true}.String())
	must(t, err)
	added, err := state.ParsePort(text)
	must(t, err)
	if _, err := s.ports.RemovePort(text); err != nil {
		t.Error(err)
	}
	open, err := listenOnce(t.Context(), t.TempDir(), added)
	if err != nil {
		t.Fatal(err)
	}
	open.close()
}

// TestPortsAreNotAddedWithoutANetwork: nothing would ever answer there.
func TestPortsAreNotAddedWithoutANetwork(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Spec: state.Spec{NoNet: true}, Home: t.TempDir()}, nil, nil)
	s.ctx, s.policy = t.Context(), policies.Default()
	if text, err := s.ports.AddPort("80"); !errors.Is(err, state.ErrPort) || len(s.ports.open) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
