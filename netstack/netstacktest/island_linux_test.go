package netstacktest

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIslandsAnswerEveryAddress shows that the island is what tests of refusals need: whatever leaves the host is answered
// there, at every address, and is seen.
func TestIslandsAnswerEveryAddress(t *testing.T) {
	t.Parallel()
	island, err := OpenIsland()
	if err != nil {
		t.Fatal(err)
	}
	defer island.Close()
	var listener net.Listener
	if err := island.Internet.Do(func() (err error) { listener, err = net.Listen("tcp", ":80"); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.LocalAddr().String())
			_ = c.Close()
		}
	}()
	sniffer, err := island.Host.Sniff()
	if err != nil {
		t.Fatal(err)
	}
	defer sniffer.Close()
	for _, addr := range []string{"45.33.32.156:80", "10.0.0.1:80", "169.254.169.254:80", "[2606:2800:21f::1]:80", "[fd00:ec2::254]:80"} {
		var got []byte
		if err := island.Host.Do(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			defer c.Close()
			got, err = io.ReadAll(c)
			return err
		}); err != nil || string(got) != addr {
			t.Errorf("%s answers %q, %v; want its own address", addr, got, err)
		}
		packets, err := sniffer.Packets()
		if err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(packets, func(p Packet) bool { return p.Device == Uplink && p.Dst.String() == addr }) {
			t.Errorf("no packet to %s was seen among %v", addr, packets)
		}
		for _, p := range packets {
			if !strings.Contains(p.String(), addr) {
				t.Errorf("seen: %v", p)
			}
		}
	}
}
