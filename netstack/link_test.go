package netstack_test

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

func TestDatagramLinkTakesVfkitsHello(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) *net.UnixAddr {
		return &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixgram"}
	}
	host, err := net.ListenUnixgram("unixgram", at("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	vmm, err := net.DialUnix("unixgram", at("vmm"), at("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vmm.Close() }()
	_, _ = vmm.Write([]byte("VFKT"))
	link, err := netstack.AcceptDatagramLink(host)
	if err != nil {
		t.Fatal(err)
	}
	s, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, Handler: &netstacktest.Handler{}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), link) }()
	cfg := s.Config()
	arp := append(append(bytes.Repeat([]byte{255}, 6), cfg.GuestMAC...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	arp = append(append(arp, cfg.GuestMAC...), cfg.Guest4.AsSlice()...)
	arp = append(append(arp, 0, 0, 0, 0, 0, 0), cfg.Gateway4.AsSlice()...)
	_, _ = vmm.Write(arp)
	buf := make([]byte, 2048)
	n, err := vmm.Read(buf)
	if err != nil || n < 42 || !bytes.Equal(buf[22:28], cfg.GatewayMAC) || !bytes.Equal(buf[:6], cfg.GuestMAC) {
		t.Errorf("ARP answer: %x, %v", buf[:n], err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-served
}
