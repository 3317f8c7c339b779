package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// Targets that -check holds.
const (
	wantOfBare    = 0.8
	wantOfGvproxy = 3.0
	wantP99       = 2 * time.Millisecond
)

func main() {
	if len(os.Args) == 6 && os.Args[1] == "serve" {
		exit(serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
	}
	var b bench
	flag.IntVar(&b.seconds, "seconds", 5, "length of one measurement")
	flag.IntVar(&b.rounds, "rounds", 3, "measurements of each server; the median counts")
	flag.IntVar(&b.names, "names", 60000, "uncached names in one measurement")
	flag.StringVar(&b.gvproxy, "gvproxy", "", "gvproxy's path, to measure through the link")
	check := flag.Bool("check", false, "fail when a target is missed")
	flag.Parse()
	exit(b.run(context.Background(), *check))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/dns:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type bench struct {
	seconds, rounds, names int

	gvproxy   string
	dir       string
	authority string
	serial    int
	missed    []error
}

// peer is one server under load.
type peer struct {
	name  string
	start func(b *bench, ctx context.Context, addr string) (*exec.Cmd, error)
	// cached and uncached say which tables it is in.
	cached, uncached bool

	addr    string
	results map[string][]float64
}

func (b *bench) run(ctx context.Context, check bool) error {
	for _, tool := range []string{"dnsperf", "dnsmasq"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; run scripts/setup --bench: %w", tool, err)
		}
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "msb-bench-dns-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	peers := []*peer{
		{name: "dnsguard", start: own("guard"), cached: true, uncached: true},
		{name: "bare miekg/dns", start: own("bare"), cached: true},
		{name: "bare miekg/dns forwarder", start: own("forwarder"), uncached: true},
		{name: "dnsmasq", start: startDnsmasq, cached: true, uncached: true},
	}
	stopAll, err := b.startAll(ctx, peers)
	stop := sync.OnceFunc(stopAll)
	defer stop()
	if err != nil {
		return err
	}
	if err := b.measure(ctx, peers); err != nil {
		return err
	}
	b.report(peers)
	if err := b.latencies(ctx, peers); err != nil {
		return err
	}
	stop()
	if b.gvproxy != "" {
		if err := b.measureLink(ctx, b.gvproxy); err != nil {
			return err
		}
	}
	if check {
		return errors.Join(b.missed...)
	}
	return nil
}

// startAll starts the authority and every peer.
func (b *bench) startAll(ctx context.Context, peers []*peer) (stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, cmd := range slices.Backward(running) {
			stopProcess(cmd)
		}
	}
	start := func(p *peer) error {
		if p.addr, err = freeAddr(); err != nil {
			return err
		}
		cmd, err := p.start(b, ctx, p.addr)
		if err != nil {
			return err
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		running = append(running, cmd)
		return ready(p.addr)
	}
	authority := &peer{name: "authority", start: own("authority")}
	if err := start(authority); err != nil {
		return stop, err
	}
	b.authority = authority.addr
	for _, p := range peers {
		p.results = make(map[string][]float64)
		if err := start(p); err != nil {
			return stop, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return stop, nil
}

func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // dnsmasq ignores SIGINT
	_ = cmd.Wait()
}

func own(kind string) func(*bench, context.Context, string) (*exec.Cmd, error) {
	return func(b *bench, ctx context.Context, addr string) (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		upstream := b.authority
		if upstream == "" {
			upstream = "-"
		}
		return exec.CommandContext(ctx, self, "serve", kind, addr, upstream, b.dir), nil
	}
}

func startDnsmasq(b *bench, ctx context.Context, addr string) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	host, upstreamPort, err := net.SplitHostPort(b.authority)
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--listen-address=127.0.0.1", "--bind-interfaces", "--port="+port, "--server="+host+"#"+upstreamPort,
		"--cache-size=10000", "--dns-forward-max=2000", "--pid-file="), nil
}

func freeAddr() (string, error) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = pc.Close() }()
	return pc.LocalAddr().String(), nil
}

// ready waits until a server answers.
func ready(addr string) error {
	m := new(dns.Msg).SetQuestion("ready.test.", dns.TypeA)
	client := &dns.Client{Timeout: 200 * time.Millisecond}
	for range 50 {
		if r, _, err := client.Exchange(m, addr); err == nil && r.Rcode == dns.RcodeSuccess {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("doesn't answer")
}

// measure loads the peers in turn, round by round, so that a noisy minute hits
// them all.
func (b *bench) measure(ctx context.Context, peers []*peer) error {
	hot, err := nameFile(b.dir, "hot", 1000)
	if err != nil {
		return err
	}
	for range b.rounds {
		for _, p := range peers {
			if p.cached {
				if _, err := dnsperf(ctx, p.addr, false, "-d", hot, "-n", "1"); err != nil {
					return err
				}
				if err := b.one(ctx, p, "cached", "-d", hot, "-l", strconv.Itoa(b.seconds)); err != nil {
					return err
				}
			}
			if p.uncached {
				b.serial++
				cold, err := nameFile(b.dir, "cold"+strconv.Itoa(b.serial), b.names)
				if err != nil {
					return err
				}
				if err := b.one(ctx, p, "uncached", "-d", cold, "-n", "1"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) one(ctx context.Context, p *peer, what string, args ...string) error {
	l, err := dnsperf(ctx, p.addr, false, args...)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%-26s %-9s %9.0f/s, %.2f %% lost\n", p.name, what, l.qps, 100*l.lost)
	p.results[what] = append(p.results[what], l.qps*(1-l.lost))
	return nil
}

// latencies loads dnsguard at half its cached peak, and the bare server at the
// same rate: what the machine itself adds is in both.
func (b *bench) latencies(ctx context.Context, peers []*peer) error {
	half := int(median(peers[0].results["cached"]) / 2)
	fmt.Printf("p99 at %d queries per second (half of dnsguard's peak; best of %d)\n", half, b.rounds)
	for _, p := range peers[:2] {
		best := time.Hour
		for range b.rounds {
			l, err := dnsperf(ctx, p.addr, true, "-d", filepath.Join(b.dir, "hot.txt"), "-l", strconv.Itoa(b.seconds), "-Q", strconv.Itoa(half))
			if err != nil {
				return err
			}
			best = min(best, time.Duration(l.p99*float64(time.Second)))
		}
		fmt.Printf("  %-26s %9v\n", p.name, best.Round(time.Microsecond))
		if p == peers[0] && best > wantP99 {
			b.missed = append(b.missed, fmt.Errorf("p99 %v, want under %v", best, wantP99))
		}
	}
	return nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// report prints the table and notes which targets were missed.
func (b *bench) report(peers []*peer) {
	guard := peers[0]
	for _, what := range []string{"cached", "uncached"} {
		fmt.Printf("%s names, queries per second (median)\n", what)
		for _, p := range peers {
			v := median(p.results[what])
			if v == 0 {
				continue
			}
			ratio := median(guard.results[what]) / v
			fmt.Printf("  %-26s %9.0f   dnsguard/this %.2f\n", p.name, v, ratio)
			if p != guard && p.name != "dnsmasq" && ratio < wantOfBare {
				b.missed = append(b.missed, fmt.Errorf("%s: %.2f of %s, want %.2f", what, ratio, p.name, wantOfBare))
			}
		}
	}
}
