package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/policies"
)

// internet is the address that the servers have for the guest. Nothing is sent there: servers dials
// loopback instead.
const internet = "93.184.215.14"

const policy = `version = 1
[[egress.allow]]
name = "servers"
cidrs = ["` + internet + `/32"]
protocol = "tcp"
ports = [` + sinkPort + `, ` + sourcePort + `]
`

func linkConfig(o options) netstack.Config {
	return netstack.Config{
		GuestMAC: netstacktest.MAC, MTU: o.mtu,
		Guest4: netip.MustParseAddr("192.168.127.2"), Gateway4: netip.MustParseAddr("192.168.127.1"), Prefix4: 24,
		Guest6: netip.MustParseAddr("fd6d:7362::2"), Gateway6: netip.MustParseAddr("fd6d:7362::1"), Prefix6: 64,
	}
}

// servers implements gateway.Dialer.
type servers struct{ sink, source string }

// DialContext dials the servers of this benchmark, and nothing else.
func (s servers) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to := map[string]string{internet + ":" + sinkPort: s.sink, internet + ":" + sourcePort: s.source}[address]
	if to == "" {
		return nil, errors.New("there is no " + address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

// used is what the gateway answers to a command: the CPU time of its life, and the packets of the capture
// that the command ended.
type used struct {
	CPU         time.Duration
	Taken, Lost uint64
}

// gatewayRole serves the link on descriptor 3, and starts and stops the capture as stdin says.
func gatewayRole(o options) error {
	p, err := policies.Parse("bench.toml", []byte(policy), nil)
	if err != nil {
		return err
	}
	tap := gateway.NewCaptureTap()
	sink, source, _ := strings.Cut(o.server, ",")
	g, err := gateway.New(gateway.Config{
		Sandbox: "bench", Policy: p, Link: linkConfig(o), Capture: tap,
		Dialer: servers{sink, source}, HasIPv6: func() bool { return false },
	})
	if err != nil {
		return err
	}
	link, err := netstack.NewStreamLinkFile(os.NewFile(3, "link"))
	if err != nil {
		return err
	}
	go func() {
		obey(tap)
		_ = link.Close()
	}()
	if o.profile != "" {
		f, err := os.Create(o.profile + "." + strconv.Itoa(o.mtu))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	_ = g.Serve(context.Background(), link) // ends with the link
	return g.Close()
}

// obey takes commands until stdin ends.
func obey(tap *gateway.CaptureTap) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var w *capture.Writer
		if path, on := strings.CutPrefix(in.Text(), "on "); on {
			var err error
			if w, err = capture.Create(path, capture.Options{}); err != nil {
				return
			}
		}
		var u used
		if old := tap.Start(w); old != nil {
			if old.Close() != nil {
				return
			}
			u.Taken, u.Lost = old.Stats()
		}
		var r syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
			return
		}
		u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
		if json.NewEncoder(os.Stdout).Encode(u) != nil {
			return
		}
	}
}
