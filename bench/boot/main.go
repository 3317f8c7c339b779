//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/msb-project/msb/internal/vm/vmtest"
	"github.com/msb-project/msb/sandbox"
)

// options is the command line.
type options struct {
	msb, peer string // the programs; peer is "" for none
	runs      int    // cold starts here
	innerRuns int    // cold starts in the emulated host, of each side
	execs     int    // round trips in a running sandbox
	json      bool
	only      string // "here", "inner" or "" for both
	job       string // internal: what to measure inside the emulated host
}

func main() {
	sandbox.MaybeRun()
	var o options
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.StringVar(&o.peer, "microsandbox", "", "directory with microsandbox's bin/msb and lib/libkrunfw.so.*; empty for none")
	flag.IntVar(&o.runs, "n", 10, "cold starts on this machine")
	flag.IntVar(&o.innerRuns, "inner-n", 5, "cold starts of each side in the emulated host")
	flag.IntVar(&o.execs, "execs", 30, "round trips in a running sandbox on this machine; a third of it in the emulated host")
	flag.BoolVar(&o.json, "json", false, "print every figure as JSON")
	flag.StringVar(&o.only, "only", "", "only \"here\" or only \"inner\"")
	flag.StringVar(&o.job, "job", "", "internal: run or exec, once, for whoever boots the emulated host")
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
	if o.only != "inner" {
		here, err := measureHere(ctx, o)
		if err != nil {
			return err
		}
		r.Here, r.Load = here, load()
	}
	if o.only != "here" {
		inner, err := measureInner(ctx, o)
		if err != nil {
			return fmt.Errorf("in the emulated host: %w", err)
		}
		r.Inner = inner
	}
	r.judge()
	if o.json {
		return r.writeJSON(os.Stdout)
	}
	return r.write(os.Stdout)
}

// measureHere takes msb's figures under QEMU's emulation.
func measureHere(ctx context.Context, o *options) (figures, error) {
	home, err := os.MkdirTemp("", "bench-boot-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(home) }()
	msb := &ours{program: o.msb, home: home, backend: "qemu"}
	all := figures{}
	if err := msb.runWarm(ctx, figures{}); err != nil { // fills the caches
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
