package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

// The fuse opens what the rule's range holds, and nothing else that is special.
func TestI5_VerdictReachesItsRangeOnly(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, "[[egress.allow]]\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.20.0.0/16\", \"169.254.0.0/16\"]\n"))
	f := flow("tcp 10.20.1.1:443", pinned("wiki.corp.example"))
	v := e.Decide(&f)
	denied := v
	denied.Action = Deny
	for _, tt := range []struct {
		v    Verdict
		addr string
		want Reach
	}{
		{v, "10.20.1.1", ReachPrivate},
		{v, "::ffff:10.20.1.1", ReachPrivate},
		{v, "10.21.1.1", ReachPublic},
		{v, "169.254.169.254", ReachPublic},
		{v, "127.0.0.1", ReachPublic},
		{denied, "10.20.1.1", ReachPublic},
		{Verdict{Action: Allow, Special: true}, "10.20.1.1", ReachPublic},
		{Verdict{Action: Allow, Special: true, Range: netip.MustParsePrefix("169.254.0.0/16")}, "169.254.169.254", ReachPublic},
		{Verdict{Action: Allow, Special: true, Range: netip.MustParsePrefix("169.254.169.254/32")}, "169.254.169.254", ReachPrivate},
	} {
		if got := tt.v.Reach(netip.AddrPortFrom(netip.MustParseAddr(tt.addr), 443)); got != tt.want {
			t.Errorf("%s by %v: %v, want %v", tt.addr, tt.v.Range, got, tt.want)
		}
	}
}

// only lets private addresses through at one address and port.
func only(open netip.AddrPort) func(netip.AddrPort) Reach {
	return func(a netip.AddrPort) Reach {
		if a == open {
			return ReachPrivate
		}
		return ReachPublic
	}
}

func TestI5_FuseJudgesTheExactAddress(t *testing.T) {
	t.Parallel()
	c := worldClassifier()
	lab := netip.MustParseAddrPort("10.20.1.1:5432")
	fuse := Fuse(c, only(lab))
	for _, tt := range []struct {
		network, address string
		class            Class // ClassPublic passes
	}{
		{"tcp4", "93.184.215.14:443", ClassPublic},
		{"tcp6", "[2a00:1450:4001::1]:443", ClassPublic},
		{"udp4", "93.184.215.14:123", ClassPublic},
		{"tcp", "[::ffff:93.184.215.14]:443", ClassPublic},
		{"tcp4", "10.20.1.1:5432", ClassPublic}, // named by allow
		{"tcp6", "[::ffff:10.20.1.1]:5432", ClassPublic},
		{"tcp4", "10.20.1.1:5433", ClassPrivate},
		{"tcp4", "127.0.0.1:80", ClassLoopback},
		{"tcp6", "[::1]:80", ClassLoopback},
		{"tcp6", "[::ffff:127.0.0.1]:80", ClassLoopback},
		{"tcp6", "[64:ff9b::7f00:1]:80", ClassLoopback},
		{"tcp4", "0.0.0.0:80", ClassUnspecified},
		{"tcp6", "[fe80::1%lo]:80", ClassLinkLocal},
		{"udp4", "169.254.169.254:80", ClassMetadata},
		{"tcp4", "93.184.215.77:443", ClassHost},
		{"tcp4", "192.168.127.1:53", ClassGateway},
		{"tcp4", "localhost:80", ClassInvalid},
		{"tcp4", "93.184.215.14", ClassInvalid},
		{"tcp4", "", ClassInvalid},
		{"unix", "/run/docker.sock", ClassInvalid},
		{"unix", "93.184.215.14:443", ClassInvalid},
		{"ip4:icmp", "93.184.215.14", ClassInvalid},
	} {
		err := fuse(context.Background(), tt.network, tt.address, nil)
		if tt.class == ClassPublic {
			if err != nil {
				t.Errorf("%s %s: %v, want passed", tt.network, tt.address, err)
			}
			continue
		}
		var fe *fuseError
		if !errors.Is(err, errFused) || !errors.As(err, &fe) || fe.Class != tt.class {
			t.Errorf("%s %s: %v, want fused as %v", tt.network, tt.address, err, tt.class)
		}
	}
	// A range that a rule opened may hold the gateway's address, or become the host's.
	everywhere := Fuse(c, func(netip.AddrPort) Reach { return ReachPrivate })
	for address, class := range map[string]Class{"192.168.127.1:53": ClassGateway, "93.184.215.77:443": ClassHost, "127.0.0.1:80": ClassLoopback} {
		var fe *fuseError
		if err := everywhere(context.Background(), "tcp4", address, nil); !errors.As(err, &fe) || fe.Class != class {
			t.Errorf("%s by a private rule: %v, want fused as %v", address, err, class)
		}
	}
	if err := everywhere(context.Background(), "tcp4", "10.20.1.2:80", nil); err != nil {
		t.Errorf("a private rule opens nothing: %v", err)
	}
	if err := Fuse(nil, func(netip.AddrPort) Reach { return ReachTarget })(context.Background(), "tcp4", "93.184.215.14:443", nil); !errors.Is(err, errFused) {
		t.Errorf("a fuse without a classifier passed an address: %v", err)
	}
	if err := Fuse(c, nil)(context.Background(), "tcp4", "10.20.1.1:5432", nil); !errors.Is(err, errFused) {
		t.Errorf("a fuse without exceptions passed a private address: %v", err)
	}
}

// A name may resolve otherwise by the time of the dial: a dialer that then gets
// loopback reaches no listener.
func TestI5_FuseStopsRealDialers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := l.Accept(); err == nil {
			seen <- struct{}{}
			_ = conn.Close()
		}
	}()
	d := net.Dialer{ControlContext: Fuse(NewClassifier(), nil)}
	if _, err := d.DialContext(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, errFused) {
		t.Errorf("dial: %v, want the fuse", err)
	}
	select {
	case <-seen:
		t.Error("the forbidden listener saw a connection")
	default:
	}
	exact := netip.MustParseAddrPort(l.Addr().String())
	d.ControlContext = Fuse(NewClassifier(), func(a netip.AddrPort) Reach {
		if a == exact {
			return ReachTarget
		}
		return ReachPublic
	})
	conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("an address that [hosts] names is fused: %v", err)
	}
	_ = conn.Close()
	<-done
}
