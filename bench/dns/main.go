//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/bench/internal/figures"
)

// Targets that -check holds.
const (
	wantOfBare    = 0.8
	wantOfGvproxy = 3.0
	wantP99       = 2 * time.Millisecond
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == "serve" {
		exit(serve(os.Args[2], os.Args[3], os.Args[4]))
	}
	var b bench
	flag.IntVar(&b.seconds, "seconds", 5, "length of one measurement")
	flag.IntVar(&b.rounds, "rounds", 3, "measurements of each server; the median counts")
	flag.IntVar(&b.names, "names", 60000, "uncached names in one measurement; with -grow, the most names")
	flag.StringVar(&b.gvproxy, "gvproxy", "", "gvproxy's path, to measure it too")
	flag.BoolVar(&b.grow, "grow", false, "measure 1 to 1,000,000 names instead")
	out := flag.String("out", "", "write every value to this file, for benchstat")
	check := flag.Bool("check", false, "fail when a target is missed")
	flag.Parse()
	exit(errors.Join(b.run(context.Background(), *check), b.set.WriteFile(*out)))
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

	grow    bool
	gvproxy string
	dir     string
	serial  int
	missed  []error
	set     figures.Set
}

// qps is the unit of rates.
const qps = "queries/s"

// Series beside those of rates, which are named for what is asked.
const (
	seriesP99  = "DNS/p99_at_half_of_peak"
	seriesRate = "DNS/"
)

// peer is one gateway under load.
type peer struct {
	name  string
	start func(ctx context.Context, path string) *exec.Cmd
	// cached and uncached say which tables it is in, want what msb must reach of it; 0 for nothing.
	cached, uncached bool
	want             float64
}

func (b *bench) run(ctx context.Context, check bool) error {
	for _, tool := range []string{"dnsperf", "dnsmasq"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; run scripts/setup --bench: %w", tool, err)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("it needs root, to make a network namespace and a TAP")
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "msb-bench-dns-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	for _, server := range []*exec.Cmd{b.own(ctx, "authority")(ctx, upstream), dnsmasq(ctx)} {
		server.Stderr = os.Stderr
		if err := server.Start(); err != nil {
			return err
		}
		defer stopProcess(server)
	}
	for _, addr := range []string{upstream, dnsmasqAddr} {
		if err := ready(addr); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	peers := []*peer{
		{name: figures.OfMsb, start: b.own(ctx, "guard"), cached: true, uncached: true},
		{name: "bare miekg/dns", start: b.own(ctx, "bare"), cached: true, want: wantOfBare},
		{name: "bare miekg/dns forwarder", start: b.own(ctx, "forwarder"), uncached: true, want: wantOfBare},
		{name: "relay to dnsmasq", start: b.own(ctx, "relay"), cached: true, uncached: true},
	}
	if b.gvproxy != "" {
		peers = append(peers, &peer{name: "gvproxy", start: b.startGvproxy, cached: true, want: wantOfGvproxy})
	}
	if b.grow {
		return b.growNames(ctx, []*peer{peers[0], peers[2], peers[3]})
	}
	if err := b.measure(ctx, peers); err != nil {
		return err
	}
	b.report(peers)
	if err := b.latencies(ctx, peers[:2]); err != nil {
		return err
	}
	if check {
		return errors.Join(b.missed...)
	}
	return nil
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
			var loads []workload
			if p.cached {
				loads = append(loads, workload{"", []string{"-d", hot, "-n", "1"}}, workload{seriesRate + "cached", []string{"-d", hot, "-l", strconv.Itoa(b.seconds)}})
			}
			if p.uncached {
				b.serial++
				cold, err := nameFile(b.dir, "cold"+strconv.Itoa(b.serial), b.names)
				if err != nil {
					return err
				}
				loads = append(loads, workload{seriesRate + "uncached", []string{"-d", cold, "-n", "1"}})
			}
			if err := b.throughLink(ctx, p, false, loads); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			_ = os.Remove(filepath.Join(b.dir, "cold"+strconv.Itoa(b.serial)+".txt"))
		}
	}
	return nil
}

// latencies loads dnsguard at half its cached peak, and the bare server at the
// same rate: what the machine and the link add is in both.
func (b *bench) latencies(ctx context.Context, peers []*peer) error {
	half := int(figures.Median(b.set.Values(seriesRate+"cached", figures.OfMsb, qps)) / 2)
	fmt.Printf("p99 at %d queries per second (half of dnsguard's peak; best of %d)\n", half, b.rounds)
	hot := filepath.Join(b.dir, "hot.txt")
	for range b.rounds {
		for _, p := range peers {
			loads := []workload{{"", []string{"-d", hot, "-n", "1"}}, {"", []string{"-d", hot, "-l", strconv.Itoa(b.seconds), "-Q", strconv.Itoa(half)}}}
			if err := b.throughLink(ctx, p, true, loads); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	for _, p := range peers {
		best := time.Duration(figures.Of(b.set.Values(seriesP99, p.name, figures.Seconds)).Min * float64(time.Second))
		fmt.Printf("  %-26s %9v\n", p.name, best.Round(time.Microsecond))
		if p == peers[0] && best > wantP99 {
			b.missed = append(b.missed, fmt.Errorf("p99 %v, want under %v", best, wantP99))
		}
	}
	return nil
}

// report prints the tables and notes which targets were missed.
func (b *bench) report(peers []*peer) {
	for _, what := range []string{"cached", "uncached"} {
		ours := figures.Median(b.set.Values(seriesRate+what, figures.OfMsb, qps))
		fmt.Printf("%s names through the link, queries per second: median (range)\n", what)
		for _, p := range peers {
			all := b.set.Values(seriesRate+what, p.name, qps)
			if len(all) == 0 {
				continue
			}
			ratio := ours / figures.Median(all)
			fmt.Printf("  %-26s %s   msb/this %.2f\n", p.name, figures.Text("%.0f", all), ratio)
			if ratio < p.want {
				b.missed = append(b.missed, fmt.Errorf("%s: %.2f of %s, want %.2f", what, ratio, p.name, p.want))
			}
		}
	}
}

// growNames asks for 1 to 1,000,000 different names, each of them once before the clock runs where that takes less than
// a measurement, and again and again while it runs.
func (b *bench) growNames(ctx context.Context, peers []*peer) error {
	for _, n := range []int{1, 100, 10_000, 1_000_000} {
		if n > b.names {
			break
		}
		names, err := nameFile(b.dir, "grow", n)
		if err != nil {
			return err
		}
		what := "names/n=" + strconv.Itoa(n)
		for range b.rounds {
			for _, p := range peers {
				loads := []workload{{"", []string{"-d", names, "-n", "1", "-l", strconv.Itoa(b.seconds)}}, {"Growth/" + what, []string{"-d", names, "-l", strconv.Itoa(b.seconds)}}}
				if err := b.throughLink(ctx, p, false, loads); err != nil {
					return fmt.Errorf("%s, %d names: %w", p.name, n, err)
				}
			}
		}
		for _, p := range peers {
			fmt.Printf("%-10d %-26s %s\n", n, p.name, figures.Text("%.0f", b.set.Values("Growth/"+what, p.name, qps)))
		}
	}
	return nil
}
