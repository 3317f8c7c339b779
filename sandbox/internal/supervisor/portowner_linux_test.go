package supervisor

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestOwnersAreReadFromProc(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0100007F:1F90": "127.0.0.1:8080", "00000000:0050": "0.0.0.0:80",
		"00000000000000000000000001000000:1F90": "[::1]:8080", "0000000000000000FFFF00000100007F:1F90": "127.0.0.1:8080",
		"": "", "01:1F90": "", "0100007F": "", "0100007F:1": "", "0100007G:1F90": "",
	} {
		got, ok := procAddress(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q is %s, %v; want %q", text, got, ok, want)
		}
	}
}

// TestProcessesThatListenAreNamed looks for this process at addresses where it listens, and where it doesn't.
func TestProcessesThatListenAreNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = u.Close() }()
	tcp, udp := netip.MustParseAddrPort(l.Addr().String()), netip.MustParseAddrPort(u.LocalAddr().String())
	at := func(host string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(host), port)
	}
	for _, c := range []struct {
		at    netip.AddrPort
		proto string
		named bool
	}{
		{tcp, "tcp", true}, {at("0.0.0.0", tcp.Port()), "tcp", true}, {at("127.0.0.2", tcp.Port()), "tcp", false}, {at("127.0.0.1", 1), "tcp", false},
		{udp, "udp", true}, {at("127.0.0.2", udp.Port()), "udp", false},
	} {
		want := "another process"
		if c.named {
			want = fmt.Sprintf("(process %d)", os.Getpid())
		}
		if got := portOwner(c.at, c.proto); got != want && (!c.named || !strings.HasSuffix(got, want)) {
			t.Errorf("%s %s: %q, want %q", c.proto, c.at, got, want)
		}
	}
}
