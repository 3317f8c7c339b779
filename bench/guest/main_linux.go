package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/sandbox"
)

// options is the command line.
type options struct {
	msb, qemu string
	rounds, n int
	out       string
}

func main() {
	sandbox.MaybeRun()
	if os.Getpid() == 1 {
		first()
	}
	if len(os.Args) > 1 && os.Args[1] == insideVerb {
		exitWith(inside(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.StringVar(&o.qemu, "qemu", "qemu-system-x86_64", "QEMU, for its user network")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured, in turns")
	flag.IntVar(&o.n, "n", 200, "names and requests of each kind in a round")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.Parse()
	if os.Getenv(insideEnv) == "" {
		exitWith(enterNamespace())
	}
	exitWith(o.measure())
}

func exitWith(err error) {
	code := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) { // it has said why
		code = 1
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "bench/guest:", err)
		code = 1
	}
	os.Exit(code)
}

// insideEnv tells a program that it is in the network namespace.
const insideEnv = "BENCH_GUEST_INSIDE"

// enterNamespace runs this program again in namespaces of its own.
func enterNamespace() error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root, to make network namespaces")
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=yes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// subject is a way to the servers. It gives the figures of one round.
type subject struct {
	name    string
	measure func(ctx context.Context, n int) (timings, error)
}

func (o *options) measure() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "bench-guest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.msb, err = filepath.Abs(o.msb); err != nil {
		return err
	}
	if os.Getenv("MSB_LIBDIR") == "" {
		if err := os.Setenv("MSB_LIBDIR", filepath.Join(filepath.Dir(o.msb), "..", "lib", "msb")); err != nil {
			return err
		}
	}
	stopWorld, err := startWorld(dir)
	if err != nil {
		return err
	}
	defer stopWorld()
	msb, err := startMsb(ctx, o.msb, dir)
	if err != nil {
		return fmt.Errorf("msb: %w", err)
	}
	defer func() { err = errors.Join(err, msb.end(context.WithoutCancel(ctx))) }()
	clock, err := msb.clock(ctx)
	if err != nil {
		return err
	}
	user, err := newUserNetwork(o.qemu, dir, clock)
	if err != nil {
		return err
	}
	subjects := []subject{{figures.OfMsb, msb.measure}, {"qemu user", user}, {"host", onHost(dir)}}
	var set figures.Set
	for range o.rounds {
		for _, s := range subjects {
			got, err := s.measure(ctx, o.n)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, kind := range kinds {
				took := got[kind]
				set.Add("Guest/"+kind+" p50", s.name, figures.Seconds, figures.Quantile(took.Seconds, 0.5))
				set.Add("Guest/"+kind+" p99", s.name, figures.Seconds, figures.Quantile(took.Seconds, 0.99))
				set.Add("Guest/"+kind+" cpu of the client", s.name, figures.Seconds, took.CPU)
			}
		}
	}
	fmt.Printf("%-24s", "ms: p50, p99, client's CPU")
	for _, s := range subjects {
		fmt.Printf("  %22s", s.name)
	}
	fmt.Println()
	for _, kind := range kinds {
		fmt.Printf("%-26s", kind)
		for _, s := range subjects {
			mid := func(what string) float64 {
				return figures.Median(set.Values("Guest/"+kind+what, s.name, figures.Seconds)) * 1e3
			}
			fmt.Printf("  %6.2f %7.2f %7.2f", mid(" p50"), mid(" p99"), mid(" cpu of the client"))
		}
		fmt.Println()
	}
	return set.WriteFile(o.out)
}

// wait bounds one measurement: a guest that answers nothing would have it wait for ever.
const wait = 3 * time.Minute
