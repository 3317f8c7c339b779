//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/msb-project/msb/bench/internal/guestwork"
	"github.com/msb-project/msb/sandbox"
)

// options is the command line.
type options struct {
	msb, backend string
	out          string
	rounds       int
	execs        int // commands, each way
	files        int // of one round
	readMiB      int // read and written in order, each round
	copyMiB      int // copied, each way
	tools, quick bool
}

func main() {
	sandbox.MaybeRun()
	if len(os.Args) > 1 && os.Args[1] == guestwork.Verb {
		if err := inside(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench-work:", err)
			os.Exit(1)
		}
		return
	}
	o := options{}
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.StringVar(&o.backend, "vm", "qemu", "the backend")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of files and tools")
	flag.IntVar(&o.execs, "n", 1000, "commands of each kind")
	flag.IntVar(&o.files, "files", 500, "files of one round")
	flag.IntVar(&o.readMiB, "mib", 64, "MiB read and written in order in one round")
	flag.IntVar(&o.copyMiB, "copy", 1024, "MiB copied each way")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.BoolVar(&o.tools, "tools", true, "measure git, npm and go too")
	flag.BoolVar(&o.quick, "quick", false, "3 rounds, 100 commands, 64 MiB copied, the rest smaller as well")
	flag.Parse()
	if o.quick {
		o.rounds, o.execs, o.files, o.readMiB, o.copyMiB = 3, 100, 200, 32, 64
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-work:", err)
		os.Exit(1)
	}
}
