package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// gvproxyHost is a loopback address on which the authority answers on port 53
// as well: gvproxy takes its upstream from resolv.conf, which has no ports.
const gvproxyHost = "127.0.0.153"

// linkConfig is what both gateways use: gvproxy's subnet is netstack's default.
func linkConfig() netstack.Config {
	return netstack.Config{
		GuestMAC: netstacktest.MAC,
		Guest4:   netip.MustParseAddr("192.168.127.2"), Gateway4: netip.MustParseAddr("192.168.127.1"), Prefix4: 24,
		Guest6: netip.MustParseAddr("fd6d:7362::2"), Gateway6: netip.MustParseAddr("fd6d:7362::1"), Prefix6: 64,
		MTU: 1500,
	}
}

// serveLink is dnsguard behind netstack, on the guest's link at path.
func serveLink(ctx context.Context, g *dnsguard.Guard, path string) error {
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
			g.ServeUDP(ctx, c)
		}
	}}
	s, err := netstack.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return s.Serve(ctx, netstack.NewStreamLink(conn))
}

// measureLink loads dnsguard and gvproxy from a Linux guest behind a TAP.
func (b *bench) measureLink(ctx context.Context, gvproxy string) error {
	if os.Geteuid() != 0 {
		return errors.New("measuring through the link needs root, to make a network namespace and a TAP; or run with -gvproxy \"\"")
	}
	upstream := exec.CommandContext(ctx, os.Args[0], "serve", "authority", gvproxyHost+":53", "-", b.dir)
	upstream.Stderr = os.Stderr
	if err := upstream.Start(); err != nil {
		return err
	}
	defer stopProcess(upstream)
	if err := ready(gvproxyHost + ":53"); err != nil {
		return err
	}
	results := make(map[string][]float64)
	for range b.rounds {
		for _, gw := range []struct {
			name  string
			start func(path string) *exec.Cmd
		}{
			{"dnsguard", func(path string) *exec.Cmd {
				return exec.CommandContext(ctx, os.Args[0], "serve", "link", path, gvproxyHost+":53", b.dir)
			}},
			{"gvproxy", func(path string) *exec.Cmd { return gvproxyCommand(ctx, gvproxy, b.dir, path) }},
		} {
			b.serial++
			path := filepath.Join(b.dir, "link"+strconv.Itoa(b.serial))
			if err := b.throughLink(ctx, gw.name, gw.start(path), path, results); err != nil {
				return fmt.Errorf("%s: %w", gw.name, err)
			}
		}
	}
	ours, theirs := median(results["dnsguard"]), median(results["gvproxy"])
	fmt.Printf("through the link, from a Linux guest, queries per second (median)\n  %-26s %9.0f\n  %-26s %9.0f   dnsguard/this %.2f\n",
		"dnsguard", ours, "gvproxy", theirs, ours/theirs)
	if ours/theirs < wantOfGvproxy {
		b.missed = append(b.missed, fmt.Errorf("through the link: %.2f of gvproxy, want %.1f", ours/theirs, wantOfGvproxy))
	}
	return nil
}

// gvproxyCommand runs gvproxy with a resolv.conf of its own, in a mount
// namespace.
func gvproxyCommand(ctx context.Context, gvproxy, dir, path string) *exec.Cmd {
	conf := filepath.Join(dir, "resolv.conf")
	_ = os.WriteFile(conf, []byte("nameserver "+gvproxyHost+"\n"), 0o600)
	script := `mount --bind "$1" /etc/resolv.conf && exec "$2" -listen-qemu "unix://$3" -ssh-port -1 -log-file /dev/null`
	return exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", script, "sh", conf, gvproxy, path)
}

// throughLink runs one gateway and loads it from a fresh guest.
func (b *bench) throughLink(ctx context.Context, name string, gateway *exec.Cmd, path string, results map[string][]float64) error {
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
	hot := filepath.Join(b.dir, "hot.txt")
	for _, args := range [][]string{{"-n", "1"}, {"-l", strconv.Itoa(b.seconds)}} {
		cmd := guest.Command("dnsperf", append([]string{"-s", "192.168.127.1", "-d", hot, "-c", "8", "-t", "2"}, args...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("dnsperf in the guest: %w: %s", err, errs.String())
		}
		if args[0] != "-l" {
			continue
		}
		l, err := parseLoad(out.String(), false)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%-26s %-9s %9.0f/s, %.2f %% lost\n", name, "link", l.qps, 100*l.lost)
		results[name] = append(results[name], l.qps*(1-l.lost))
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
