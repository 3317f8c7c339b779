//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// upstream is where the authority answers: gvproxy takes its upstream from resolv.conf, which has no ports.
const upstream = "127.0.0.153:53"

// dnsmasqAddr is that of dnsmasq.
const dnsmasqAddr = "127.0.0.154:53"

// linkConfig is what all gateways use: gvproxy's subnet is netstack's default.
func linkConfig() netstack.Config {
	return netstack.Config{
		GuestMAC: netstacktest.MAC,
		Guest4:   netip.MustParseAddr("192.168.127.2"), Gateway4: netip.MustParseAddr("192.168.127.1"), Prefix4: 24,
		Guest6: netip.MustParseAddr("fd6d:7362::2"), Gateway6: netip.MustParseAddr("fd6d:7362::1"), Prefix6: 64,
		MTU: 1500,
	}
}

// serveLink answers the UDP flows of the guest on the link at path.
func serveLink(ctx context.Context, path string, flow func(context.Context, net.Conn)) error {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	cfg := linkConfig()
	cfg.Handler = &netstacktest.Handler{UDP: func(ctx context.Context, f *netstack.UDPFlow) {
		if c, err := f.Accept(); err == nil {
			flow(ctx, c)
		}
	}}
	s, err := netstack.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return s.Serve(ctx, netstack.NewStreamLink(conn))
}

// own starts a gateway or a server of this program.
func (b *bench) own(_ context.Context, kind string) func(context.Context, string) *exec.Cmd {
	return func(ctx context.Context, path string) *exec.Cmd {
		return exec.CommandContext(ctx, os.Args[0], "serve", kind, path, b.dir)
	}
}

// startGvproxy runs gvproxy with a resolv.conf of its own, in a mount namespace.
func (b *bench) startGvproxy(ctx context.Context, path string) *exec.Cmd {
	conf := filepath.Join(b.dir, "resolv.conf")
	_ = os.WriteFile(conf, []byte("nameserver "+netip.MustParseAddrPort(upstream).Addr().String()+"\n"), 0o600)
	script := `mount --bind "$1" /etc/resolv.conf && exec "$2" -listen-qemu "unix://$3" -ssh-port -1 -log-file /dev/null`
	return exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", script, "sh", conf, b.gvproxy, path)
}

func dnsmasq(ctx context.Context) *exec.Cmd {
	addr, server := netip.MustParseAddrPort(dnsmasqAddr), netip.MustParseAddrPort(upstream)
	return exec.CommandContext(ctx, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--listen-address="+addr.Addr().String(), "--bind-interfaces", "--server="+server.Addr().String(),
		"--cache-size=10000", "--dns-forward-max=2000", "--pid-file=")
}

func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // dnsmasq ignores SIGINT
	_ = cmd.Wait()
}

// workload is one run of dnsperf; a result without a name is not kept.
type workload struct {
	name string
	args []string
}

// throughLink runs one gateway and loads it from a fresh guest.
func (b *bench) throughLink(ctx context.Context, p *peer, latencies bool, loads []workload) error {
	b.serial++
	path := filepath.Join(b.dir, "link"+strconv.Itoa(b.serial))
	gateway := p.start(ctx, path)
	gateway.Stderr = os.Stderr
	if err := gateway.Start(); err != nil {
		return err
	}
	defer stopProcess(gateway)
	conn, err := dialUnix(path)
	if err != nil {
		return err
	}
	guest, err := netstacktest.OpenTapGuest(linkConfig())
	if err != nil {
		return err
	}
	guest.Bridge(conn)
	defer guest.Close()
	defer func() { _ = conn.Close() }()
	for _, load := range loads {
		l, err := dnsperf(guest, latencies, load.args)
		if err != nil {
			return err
		}
		if latencies {
			b.set.Add(seriesP99, p.name, figures.Seconds, l.p99)
		}
		if load.name == "" {
			continue
		}
		fmt.Fprintf(os.Stderr, "%-26s %-9s %9.0f/s, %.2f %% lost\n", p.name, load.name, l.qps, 100*l.lost)
		b.set.Add(load.name, p.name, qps, l.qps*(1-l.lost))
	}
	return nil
}

func dialUnix(path string) (conn net.Conn, err error) {
	for range 100 {
		if conn, err = net.Dial("unix", path); err == nil {
			return conn, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}
