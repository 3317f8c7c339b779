package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/msb-project/msb/bench/internal/figures"
)

func main() {
	msb := flag.String("msb", "bin/msb", "the msb that reviews captures; empty for none")
	rounds := flag.Int("rounds", 5, "how often each side is measured, in turns")
	most := flag.Int("flows", 60_000, "flows of the longest capture; each has ten packets")
	out := flag.String("out", "", "write every value to this file, for benchstat")
	testing.Init()
	flag.Parse()
	if err := flag.Set("test.benchtime", "200ms"); err != nil { // of each judgement's measurement, a round
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var set figures.Set
	err := errors.Join(rules(*rounds, &set), captures(ctx, *msb, *rounds, *most, &set), set.WriteFile(*out))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/growth:", err)
		os.Exit(1)
	}
}
