//go:build linux

package system

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestListeningSocketsAreReported: those of this machine, of which the test has some of its own.
func TestListeningSocketsAreReported(t *testing.T) {
	t.Parallel()
	want := map[Socket]bool{}
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer func() { _ = l.Close() }() // nobody connected
		if address == "0.0.0.0:0" {
			continue // Go listens on [::]
		}
		want[Socket{"tcp", netip.MustParseAddrPort(l.Addr().String())}] = true
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.Close() }() // nothing was sent
	want[Socket{"udp", netip.MustParseAddrPort(u.LocalAddr().String())}] = true
	connected, err := net.Dial("udp", u.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connected.Close() }() // nothing was sent
	all, err := ListeningSockets(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for s := range want {
		if !slices.Contains(all, s) {
			t.Errorf("%v is not in %v", s, all)
		}
	}
	if s := (Socket{"udp", netip.MustParseAddrPort(connected.LocalAddr().String())}); slices.Contains(all, s) {
		t.Errorf("%v is connected", s)
	}
	if all, err = ListeningSockets(1); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	for text, want := range map[string]string{
		"0100007F:1F90": "127.0.0.1:8080", "00000000000000000000000001000000:0050": "[::1]:80", "0000000000000000FFFF00000100007F:0016": "127.0.0.1:22",
		"": "", "xyz:1": "", "0100007F:1FFFF": "", "01:1": "",
	} {
		got, ok := parseSocketAddress(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %s, %v", text, got, ok)
		}
	}
}
