package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what every role is told.
type options struct {
	role    string
	gvproxy string
	seconds float64
	only    string
	target  string
	base    int
	mtu     int
	large   bool
	trust   bool
	tap     bool
	rounds  int
	profile string
	out     string
	grow    bool
	most    int
}

func main() {
	var o options
	flag.StringVar(&o.role, "role", "", "internal: what this process is")
	flag.StringVar(&o.gvproxy, "gvproxy", "", "path of a gvproxy; left out if empty")
	flag.Float64Var(&o.seconds, "seconds", 3, "length of each bulk transfer")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each subject is measured, in turns; the medians count")
	flag.BoolVar(&o.tap, "tap", false, "internal")
	flag.StringVar(&o.only, "only", "", "comma-separated subjects; all if empty")
	flag.StringVar(&o.target, "target", "127.0.0.1", "internal: address of the server as the client sees it")
	flag.IntVar(&o.base, "base", 0, "internal: first port of the server")
	flag.IntVar(&o.mtu, "mtu", 0, "internal")
	flag.BoolVar(&o.large, "large", false, "internal")
	flag.BoolVar(&o.trust, "trust", false, "internal")
	flag.StringVar(&o.profile, "profile", "", "write CPU profiles of our gateway to this prefix")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.BoolVar(&o.grow, "grow", false, "measure downloads on more and more flows at once instead, from 1")
	flag.IntVar(&o.most, "most", growth[len(growth)-1], "with -grow, the most flows")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/net:", err)
		os.Exit(1)
	}
}

// descriptors are what a relay of the most flows needs, with some to spare. Where the limit is 20,000 and can't be
// raised, a dozen of its 10,000 flows don't open, which costs it a thousandth.
const descriptors = 32 << 10

func run(o options) error {
	limit := syscall.Rlimit{Cur: descriptors, Max: descriptors}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	growth = slices.DeleteFunc(growth, func(n int) bool { return n > o.most })
	switch o.role {
	case "server":
		return server()
	case "client":
		return client(o)
	case "gateway":
		return gateway(o)
	case "relay":
		return copyRelay(o)
	case "bridge":
		return bridge(o)
	case "":
		return compare(o)
	}
	return errors.New("no such role: " + o.role)
}

// compare runs every subject, round by round, and prints the table.
func compare(o options) error {
	srv, base, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	o.base = base
	chosen := slices.DeleteFunc(subjects(o), func(s subject) bool {
		return o.only != "" && !slices.Contains(strings.Split(o.only, ","), s.name)
	})
	t := &table{columns: allColumns}
	if o.grow {
		t.columns = growthColumns()
	}
	for round := range o.rounds {
		for _, s := range chosen {
			fmt.Fprintf(os.Stderr, "%s: measuring, round %d of %d ...\n", s.name, round+1, o.rounds)
			r, err := s.measure(o)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			t.add(s.name, r)
		}
		slices.Reverse(chosen) // who comes last meets a busier machine
	}
	t.print(os.Stdout)
	return t.set.WriteFile(o.out)
}

func (o options) duration() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }
