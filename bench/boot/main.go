//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/bench/internal/guestwork"
	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/sandbox"
)

// options is the command line.
type options struct {
	msb, peer string // the programs; peer is "" for none
	runs      int    // cold starts here
	innerRuns int    // cold starts in the emulated host, of each side
	workRuns  int    // rounds of work in the emulated host, of each side
	execs     int    // round trips in a running sandbox
	many      int    // sandboxes started each way; 0 for none
	beside    int    // sandboxes that are idle at once
	json      bool
	out       string // a file for benchstat
	only      string // "here", "inner", "work", "many" or "" for all
	job       string // internal: what to measure inside the emulated host
}

// onlyWork is the part of the inner run that has its own word.
const onlyWork = "work"

func main() {
	sandbox.MaybeRun()
	if len(os.Args) > 1 && os.Args[1] == guestwork.Verb {
		if err := guestwork.Run(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench-boot:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.StringVar(&o.peer, "microsandbox", "", "directory with microsandbox's bin/msb and lib/libkrunfw.so.*; empty for none")
	flag.IntVar(&o.runs, "n", 10, "cold starts on this machine")
	flag.IntVar(&o.innerRuns, "inner-n", 5, "cold starts of each side in the emulated host")
	flag.IntVar(&o.workRuns, "work-n", 3, "rounds of copies and of files in a host directory of each side in the emulated host")
	flag.IntVar(&o.execs, "execs", 30, "round trips in a running sandbox on this machine; a third of it in the emulated host")
	flag.IntVar(&o.many, "many", 20, "sandboxes started one by one, staggered and at once, warm and cold; 0 for none")
	flag.IntVar(&o.beside, "beside", 10, "up to how many sandboxes are idle at once, at most 50, for their memory; needs -many")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.BoolVar(&o.json, "json", false, "print every figure as JSON")
	flag.StringVar(&o.only, "only", "", "only \"here\", only \"inner\", of it only \"work\", or only \"many\"")
	flag.StringVar(&o.job, "job", "", "internal: run, process, exec or work, once, for whoever boots the emulated host")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-boot:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, o *options) error {
	if o.job != "" {
		return serveJob(ctx, o)
	}
	if err := vmtest.FindLibraries(); err != nil {
		return err
	}
	var r report
	var err error
	if r.Load = load(); o.only == "" || o.only == "here" {
		if r.Here, err = measureHere(ctx, o); err != nil {
			return err
		}
		r.Here.record(&r.set, "emulation")
	}
	if o.only == "" || o.only == "many" {
		if err := measureMany(ctx, o, &r.set); err != nil {
			return err
		}
	}
	if o.only == "" || o.only == "inner" || o.only == onlyWork {
		if r.Inner, err = measureInner(ctx, o); err != nil {
			return fmt.Errorf("in the emulated host: %w", err)
		}
		r.Inner.record(&r.set, "libkrun")
	}
	r.judge()
	if o.json {
		err = r.writeJSON(os.Stdout)
	} else if err = r.write(os.Stdout); err == nil && (o.only == "" || o.only == "many") && o.many > 0 {
		err = writeMany(os.Stdout, countsUpTo(o.beside), &r.set)
	}
	return errors.Join(err, r.set.WriteFile(o.out))
}

// measureMany starts many sandboxes under QEMU's emulation.
func measureMany(ctx context.Context, o *options, set *figures.Set) (err error) {
	if o.many == 0 {
		return nil
	}
	home, err := os.MkdirTemp("", "bench-boot-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	msb := &ours{program: o.msb, home: home, backend: "qemu"}
	if err := msb.runWarm(ctx, values{}); err != nil { // fills the caches
		return err
	}
	if err := msb.startMany(ctx, o.many, set); err != nil {
		return err
	}
	return msb.grow(ctx, countsUpTo(o.beside), set)
}

// measureHere takes msb's figures under QEMU's emulation.
func measureHere(ctx context.Context, o *options) (values, error) {
	home, err := os.MkdirTemp("", "bench-boot-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(home) }()
	msb := &ours{program: o.msb, home: home, backend: "qemu"}
	all := values{}
	if err := msb.runWarm(ctx, values{}); err != nil { // fills the caches
		return nil, err
	}
	for i := range o.runs {
		progress("QEMU emulation here: cold and warm start %d of %d", i+1, o.runs)
		if err := msb.runOnce(ctx, all); err != nil {
			return nil, err
		}
		if err := msb.runWarm(ctx, all); err != nil {
			return nil, err
		}
	}
	if err := msb.process(ctx, all); err != nil {
		return nil, err
	}
	progress("QEMU emulation here: %d round trips", o.execs)
	if err := msb.execute(ctx, o.execs, all); err != nil {
		return nil, err
	}
	return all, msb.agentSize(all)
}

// progress tells a waiting person what is going on.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, strings.TrimSuffix(format, "\n")+"\n", args...)
}

// load is what other work the machine had, in the kernel's words.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
