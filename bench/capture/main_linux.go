package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/sandbox"
)

// maxCost is the part of bulk throughput that a capture may take (-check).
const maxCost = 0.10

type options struct {
	role, dir, profile string
	seconds            float64
	rounds, mtu        int
	check              bool
	out                string
	server, msb        string
}

func main() {
	sandbox.MaybeRun()
	var o options
	flag.StringVar(&o.role, "role", "", "internal: what this process is")
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb that runs a real guest on QEMU; empty for none")
	flag.StringVar(&o.server, "server", "", "internal: addresses of the servers")
	flag.IntVar(&o.mtu, "mtu", 0, "only this MTU, without a real guest; 1500 (the gateway's default) and 65520 (sandboxes') if 0")
	flag.Float64Var(&o.seconds, "seconds", 1, "length of each transfer")
	flag.IntVar(&o.rounds, "rounds", 10, "rounds of four transfers: off, on, on, off")
	flag.StringVar(&o.dir, "dir", "", "where the capture is written; a temporary directory if empty")
	flag.StringVar(&o.profile, "profile", "", "write the gateway's CPU profiles to this prefix")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.BoolVar(&o.check, "check", false, "fail if a capture costs more than a tenth")
	flag.Parse()
	run := compare
	if o.role == "gateway" {
		run = gatewayRole
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/capture:", err)
		os.Exit(1)
	}
}

// Ports of the internet's servers, as the guest knows them.
const (
	sinkPort   = "7"
	sourcePort = "19"
)

// compare measures every MTU and direction.
func compare(o options) error {
	dir, err := os.MkdirTemp(o.dir, "msb-bench-capture-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.dir = dir
	mtus := []int{netstack.DefaultMTU, netstack.LargeMTU}
	if o.mtu != 0 {
		mtus = []int{o.mtu}
	}
	fmt.Println("   mtu  way    off GB/s (quartiles)     on GB/s (quartiles)     cost   gateway CPU s/GB off    on   packets lost")
	var missed error
	var set figures.Set
	for _, o.mtu = range mtus {
		w, err := openWorld(o)
		if err != nil {
			return err
		}
		for _, way := range []string{"up", "down"} {
			f, err := w.measure(o, way)
			if err != nil {
				return errors.Join(err, w.close())
			}
			fmt.Printf("%6d  %-4s  %s\n", o.mtu, way, f)
			f.record(&set, "mtu="+strconv.Itoa(o.mtu), way)
			if o.mtu == netstack.DefaultMTU || len(mtus) == 1 { // no guest of msb's sends as fast at the other
				missed = errors.Join(missed, o.judge(strconv.Itoa(o.mtu), way, f))
			}
		}
		if err := w.close(); err != nil {
			return err
		}
	}
	if o.msb != "" && len(mtus) > 1 {
		missed = errors.Join(missed, guestRows(o, &set))
	}
	return errors.Join(missed, set.WriteFile(o.out))
}

// judge is an error for figures that -check doesn't let pass.
func (o options) judge(guest, way string, f *samples) error {
	if cost := f.cost(); o.check && cost > maxCost {
		return fmt.Errorf("%s %s: a capture costs %.1f %%", guest, way, 100*cost)
	}
	return nil
}

// transferTime is the length of a transfer.
func (o options) transferTime() time.Duration {
	return time.Duration(o.seconds * float64(time.Second))
}

// world is a guest, its gateway and the servers.
type world struct {
	guest   *netstacktest.TapGuest
	gateway *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	link    net.Conn
	sunk    chan int64
}

func openWorld(o options) (*world, error) {
	w := &world{sunk: make(chan int64, 1)}
	sink, err := listen(func(c net.Conn) { w.sunk <- drain(c) })
	if err != nil {
		return nil, err
	}
	source, err := listen(func(c net.Conn) { fill(c) })
	if err != nil {
		return nil, err
	}
	if w.guest, err = netstacktest.OpenTapGuest(linkConfig(o)); err != nil {
		return nil, err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	host, guest := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
	defer func() { _ = errors.Join(host.Close(), guest.Close()) }()
	if w.link, err = net.FileConn(guest); err != nil {
		return nil, err
	}
	w.guest.Bridge(w.link)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w.gateway = exec.CommandContext(context.Background(), self, "-role", "gateway", "-mtu", strconv.Itoa(o.mtu),
		"-dir", o.dir, "-profile", o.profile, "-server", sink+","+source)
	w.gateway.ExtraFiles, w.gateway.Stderr = []*os.File{host}, os.Stderr
	if w.in, err = w.gateway.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.gateway.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	return w, w.gateway.Start()
}

func (w *world) close() error {
	_ = w.in.Close()
	err := w.gateway.Wait()
	_ = w.link.Close()
	w.guest.Close()
	return err
}

func listen(serve func(net.Conn)) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer func() { _ = c.Close() }(); serve(c) }()
		}
	}()
	return l.Addr().String(), nil
}

const piece = 256 << 10

// drain reads until the end and tells how much it was.
func drain(c net.Conn) (n int64) {
	for buf := make([]byte, piece); ; {
		m, err := c.Read(buf)
		n += int64(m)
		if err != nil {
			return n
		}
	}
}

// fill writes until the other end has gone, or the connection's deadline comes.
func fill(c net.Conn) {
	for buf := make([]byte, piece); ; {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// ask gives the gateway a command and returns what it has used so far.
func (w *world) ask(command string) (u used, err error) {
	if _, err := fmt.Fprintln(w.in, command); err != nil {
		return u, err
	}
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return u, fmt.Errorf("the gateway ended: %w", err)
	}
	return u, json.Unmarshal(line, &u)
}

// measure makes rounds of transfers in one direction.
func (w *world) measure(o options, way string) (*samples, error) {
	f := &samples{}
	if _, err := w.transfer(o, way); err != nil { // the connection's first, which warms
		return nil, err
	}
	for range o.rounds {
		for _, on := range []bool{false, true, true, false} {
			if err := w.one(o, way, on, f); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func (w *world) one(o options, way string, on bool, f *samples) error {
	command := "off"
	if on {
		command = "on " + filepath.Join(o.dir, "session.pcapng")
	}
	before, err := w.ask(command)
	if err != nil {
		return err
	}
	rate, err := w.transfer(o, way)
	if err != nil {
		return err
	}
	after, err := w.ask("off") // closes the capture: its last batch counts
	if err != nil {
		return err
	}
	f.add(on, sample{rate: rate, cpu: (after.CPU - before.CPU).Seconds() / (rate * o.seconds / 1e9), taken: after.Taken, lost: after.Lost})
	return nil
}

// transfer moves bytes for a while and returns the rate at the receiver.
func (w *world) transfer(o options, way string) (float64, error) {
	port := sinkPort
	if way == "down" {
		port = sourcePort
	}
	var c net.Conn
	err := w.guest.Do(func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.DialContext(context.Background(), "tcp", net.JoinHostPort(internet, port))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	start := time.Now()
	if err := c.SetDeadline(start.Add(o.transferTime())); err != nil {
		return 0, err
	}
	var n int64
	if way == "down" {
		n = drain(c)
	} else {
		fill(c)
		_ = c.Close()
		n = <-w.sunk
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// sample is one transfer: bytes a second, the gateway's CPU seconds for each GB, packets.
type sample struct {
	rate, cpu   float64
	taken, lost uint64
}

// samples are those of one MTU and direction.
type samples struct{ off, on []sample }

func (f *samples) add(on bool, s sample) {
	if on {
		f.on = append(f.on, s)
	} else {
		f.off = append(f.off, s)
	}
}

// record adds the values to the series: msb's own are those with a capture.
func (f *samples) record(set *figures.Set, guest, way string) {
	what := "Capture/" + guest + "/way=" + way
	for _, side := range []struct {
		subject string
		all     []sample
	}{{figures.OfMsb, f.on}, {"no capture", f.off}} {
		for _, s := range side.all {
			set.Add(what, side.subject, figures.Rate, s.rate)
		}
	}
}

// at is a quantile of a figure.
func at(all []sample, q float64, figure func(sample) float64) float64 {
	v := make([]float64, len(all))
	for i, s := range all {
		v[i] = figure(s)
	}
	return figures.Quantile(v, q)
}

func rateOf(s sample) float64 { return s.rate / 1e9 }
func cpuOf(s sample) float64  { return s.cpu }

// cost is the part of the throughput that is gone with a capture.
func (f *samples) cost() float64 { return 1 - at(f.on, 0.5, rateOf)/at(f.off, 0.5, rateOf) }

// short is the throughput with and without, and the cost.
func (f *samples) short() string {
	three := func(all []sample) string {
		return fmt.Sprintf("%.3f (%.3f to %.3f)", at(all, 0.5, rateOf), at(all, 0.25, rateOf), at(all, 0.75, rateOf))
	}
	return fmt.Sprintf("%-23s  %-23s  %5.1f %%", three(f.off), three(f.on), 100*f.cost())
}

// String implements fmt.Stringer.
func (f *samples) String() string {
	var taken, lost uint64
	for _, s := range f.on {
		taken, lost = taken+s.taken, lost+s.lost
	}
	return fmt.Sprintf("%s  %19.2f  %5.2f   %.2f %%", f.short(),
		at(f.off, 0.5, cpuOf), at(f.on, 0.5, cpuOf), 100*float64(lost)/float64(max(taken+lost, 1)))
}
