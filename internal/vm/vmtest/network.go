//go:build linux

package vmtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// checkNoNetwork looks from inside a guest that was started without a network
// device for any way out: a device, IPv4, IPv6 by the same route, vsock to
// every well-known context. It serves invariant 2.
func checkNoNetwork(t testing.TB, g *Guest) {
	t.Helper()
	for dev := range strings.FieldsSeq(g.Ask(t, "list /sys/class/net")) {
		if dev != "lo" && dev != "dummy0" { // the kernel's own, they lead nowhere
			t.Errorf("the guest has the network device %s", dev)
		}
	}
	// 127.0.0.1 is in the list because TSI would take it to the host's loopback.
	for _, address := range []string{"10.0.2.2 80", "127.0.0.1 22", "192.0.2.1 443"} {
		if got := g.Ask(t, "socket inet %s", address); !strings.HasPrefix(got, "refused") {
			t.Errorf("connect to %s from the guest: %s, want refused", address, got)
		}
	}
	for cid := range 4 { // hypervisor, local, host, a first guest
		if got := g.Ask(t, "socket vsock %d 1024", cid); !strings.HasPrefix(got, "refused") {
			t.Errorf("vsock to context %d from the guest: %s, want refused", cid, got)
		}
	}
}

// etherType is of the range for local experiments (IEEE 802).
const etherType = 0x88b5

// minFrame is an Ethernet frame's least length without its checksum.
const minFrame = 60

// largeMTU is netstack.LargeMTU, which every backend's card must take.
const largeMTU = 65520

// CheckFrames sends a small and a large frame each way over the link whose host
// end is given.
func CheckFrames(t testing.TB, g *Guest, link io.ReadWriter, mac net.HardwareAddr) {
	t.Helper()
	if got := g.Ask(t, "read /sys/class/net/eth0/address"); got != mac.String() {
		t.Errorf("eth0 has the address %s, want %s", got, mac)
	}
	checkFrames(t, g, link, mac, "")
	if got := g.Ask(t, "mtu %d", largeMTU); got != "set" {
		t.Fatalf("set the MTU: %s", got)
	}
	text := "; and so on"
	checkFrames(t, g, link, mac, strings.Repeat(text, largeMTU/len(text)-2))
}

func checkFrames(t testing.TB, g *Guest, link io.ReadWriter, mac net.HardwareAddr, rest string) {
	t.Helper()
	host := net.HardwareAddr{0x02, 0, 0, 0, 0, 2}
	up := frame(host, mac, "from the guest"+rest)
	if got := g.Ask(t, "frame %x", up); got != "sent" {
		t.Fatalf("the guest's frame: %s", got)
	}
	// The guest's kernel sends frames of its own (router solicitations).
	for {
		got, err := readFrame(link)
		if err != nil {
			t.Fatalf("read the guest's frame: %v", err)
		}
		if string(got) == string(up) {
			break
		}
	}
	if got := g.Ask(t, "recv arm"); got != "armed" {
		t.Fatalf("arm: %s", got)
	}
	down := frame(mac, host, "from the host"+rest)
	if _, err := link.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(down))), down...)); err != nil {
		t.Fatal(err)
	}
	if got, want := g.Ask(t, "recv take"), fmt.Sprintf("%x", down); got != want {
		t.Errorf("the guest received %.100s… (%d bytes), want %.100s… (%d)", got, len(got)/2, want, len(want)/2)
	}
}

func frame(to, from net.HardwareAddr, text string) []byte {
	b := append(append([]byte(nil), to...), from...)
	b = append(binary.BigEndian.AppendUint16(b, etherType), text...)
	return append(b, make([]byte, max(0, minFrame-len(b)))...)
}

// maxFrame is more than any frame that a guest without offloads sends.
const maxFrame = 65536

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
