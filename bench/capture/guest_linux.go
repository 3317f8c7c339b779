package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// settled is how long a supervisor may take to obey a signal.
const settled = 300 * time.Millisecond

// realGuest measures a sandbox on QEMU: what a capture costs where a guest's own work is most of it.
type realGuest struct {
	sb   *sandbox.Sandbox
	sunk chan moved
}

// moved is a transfer as the server saw it.
type moved struct {
	bytes int64
	took  time.Duration
}

func (m moved) rate() float64 { return float64(m.bytes) / m.took.Seconds() }

func openGuest(o options) (*realGuest, error) {
	g := &realGuest{sunk: make(chan moved, 1)}
	sink, err := listen(func(c net.Conn) { g.sunk <- clocked(c, func() int64 { return drain(c) }) })
	if err != nil {
		return nil, err
	}
	source, err := listen(func(c net.Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(o.transferTime()))
		g.sunk <- clocked(c, func() int64 { return pour(c) })
	})
	if err != nil {
		return nil, err
	}
	p, err := policies.Parse("bench.toml", []byte(fmt.Sprintf("version = 1\n[hosts]\n\"sink.internal\" = %q\n\"source.internal\" = %q\n", sink, source)), nil)
	if err != nil {
		return nil, err
	}
	g.sb, err = sandbox.Start(context.Background(), sandbox.Config{
		Program: o.msb, Policy: p, Backend: "qemu", Pcap: filepath.Join(o.dir, "guest.pcapng"), PcapOptions: sandbox.PcapOptions{Off: true},
	})
	return g, err
}

// clocked times a transfer from its first byte.
func clocked(c net.Conn, transfer func() int64) moved {
	start := time.Now()
	n := transfer()
	_ = c.Close()
	return moved{n, time.Since(start)}
}

// pour writes until the deadline and tells how much it was.
func pour(c net.Conn) (n int64) {
	for buf := make([]byte, piece); ; {
		m, err := c.Write(buf)
		n += int64(m)
		if err != nil {
			return n
		}
	}
}

func (g *realGuest) measure(o options, way string) (*samples, error) {
	f := &samples{}
	for i := range o.rounds + 1 {
		for _, on := range []bool{false, true, true, false} {
			rate, err := g.one(o, way, on)
			if err != nil {
				return nil, err
			}
			if i > 0 { // the first round warms
				f.add(on, sample{rate: rate})
			}
		}
	}
	return f, nil
}

func (g *realGuest) one(o options, way string, on bool) (float64, error) {
	if err := g.sb.SwitchCapture(on); err != nil {
		return 0, err
	}
	time.Sleep(settled)
	script := "nc source.internal 19 </dev/null >/dev/null"
	if way == "up" {
		script = fmt.Sprintf("timeout %d dd if=/dev/zero bs=256k 2>/dev/null | nc sink.internal 7", max(1, int(o.seconds+0.5)))
	}
	var said strings.Builder
	st, err := g.sb.Exec(context.Background(), sandbox.ExecOptions{Argv: []string{"sh", "-c", script}, Stdout: io.Discard, Stderr: &said})
	if err != nil {
		return 0, err
	}
	select {
	case m := <-g.sunk:
		return m.rate(), nil
	case <-time.After(10 * time.Second):
		return 0, fmt.Errorf("the guest moved nothing: exit code %d: %s", st.Code, said.String())
	}
}

// guestRows prints the rows of a real guest.
func guestRows(o options, set *figures.Set) error {
	if _, err := os.Stat(o.msb); err != nil {
		return fmt.Errorf("no msb to run a guest with: %w; run make build, or give -msb \"\"", err)
	}
	g, err := openGuest(o)
	if err != nil {
		return err
	}
	var missed error
	for _, way := range []string{"up", "down"} {
		f, err := g.measure(o, way)
		if err != nil {
			_ = g.sb.Close()
			return err
		}
		fmt.Printf("%6s  %-4s  %s\n", "guest", way, f.short())
		f.record(set, "guest", way)
		missed = errors.Join(missed, o.judge("a guest on QEMU", way, f))
	}
	return errors.Join(missed, g.sb.Close())
}
