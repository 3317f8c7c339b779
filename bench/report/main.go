package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// options is the command line.
type options struct {
	root  string // of the tree
	quick bool
	only  string // a regular expression of programs' names
	keep  bool   // read what earlier runs wrote, and run nothing
	write bool   // docs/benchmarks.md and its plots
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "the tree of msb")
	flag.BoolVar(&o.quick, "quick", false, "short measurements, which show what is broken and no figure to quote")
	flag.StringVar(&o.only, "only", "", "only programs whose name matches this `regexp`")
	flag.BoolVar(&o.keep, "keep", false, "run nothing: report what earlier runs wrote")
	flag.BoolVar(&o.write, "write", false, "write docs/benchmarks.md and its plots; else print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	floors, err := readFloors(filepath.Join(o.root, "bench", "floors.toml"))
	if err != nil {
		return err
	}
	var failed error
	if !o.keep {
		failed = o.measure(ctx)
	}
	r, err := readResults(o.results())
	if err != nil {
		return errors.Join(failed, err)
	}
	d := document{results: r, machine: describe(ctx, o.root), floors: check(floors, r), complete: o.only == "" && failed == nil, short: o.quick}
	if o.write {
		err = d.writeFiles(filepath.Join(o.root, "docs"))
	} else {
		_, err = os.Stdout.WriteString(d.markdown(false))
	}
	if !o.quick { // whose figures are too few to fail for
		err = errors.Join(err, missed(d.floors, d.complete))
	}
	return errors.Join(failed, err)
}

// results is the directory that the programs write to.
func (o options) results() string {
	name := "bench"
	if o.quick {
		name = "bench-quick"
	}
	return filepath.Join(o.root, "bin", name)
}
