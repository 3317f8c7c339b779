package main

import (
	"bytes"
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
	msb      string
	rounds   int
	recorded int
	data     int // MiB of random bytes on the disk
	xfs      bool
	out      string
}

func main() {
	var o options
	flag.StringVar(&o.msb, "msb", "bin/msb", "the msb to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured, in turns with its peer")
	flag.IntVar(&o.recorded, "recorded", 10_000, "sandboxes that msb ls lists")
	flag.IntVar(&o.data, "data", 800, "MiB of random bytes on the disk of 1 GiB")
	flag.BoolVar(&o.xfs, "xfs", true, "measure clones on an XFS as well, which takes root and mkfs.xfs")
	flag.StringVar(&o.out, "out", "", "write every value to this file, for benchstat")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var set figures.Set
	err := o.measure(ctx, &set)
	if err == nil {
		err = set.WriteFile(o.out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/life:", err)
		os.Exit(1)
	}
	write(&set)
}

func (o *options) measure(ctx context.Context, set *figures.Set) (err error) {
	if o.msb, err = filepath.Abs(o.msb); err != nil {
		return err
	}
	if os.Getenv("MSB_LIBDIR") == "" {
		if err := os.Setenv("MSB_LIBDIR", filepath.Join(filepath.Dir(o.msb), "..", "lib", "msb")); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "bench-life-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := o.lists(ctx, filepath.Join(dir, "many"), set); err != nil {
		return fmt.Errorf("ls: %w", err)
	}
	if err := o.disks(ctx, filepath.Join(dir, "home"), "tmp", set); err != nil {
		return fmt.Errorf("clones: %w", err)
	}
	if !o.xfs {
		return nil
	}
	mount, unmount, err := mountXFS(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/life: no clones on XFS:", err)
		return nil
	}
	defer func() { err = errors.Join(err, unmount()) }()
	if err := o.disks(ctx, filepath.Join(mount, "home"), "xfs", set); err != nil {
		return fmt.Errorf("clones on XFS: %w", err)
	}
	return nil
}

// run runs a program and returns how long it took, and how long on a processor.
func run(ctx context.Context, env []string, program string, args ...string) (took, cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stderr = &out
	begin := time.Now()
	err = cmd.Run()
	took = time.Since(begin)
	if err != nil {
		return took, 0, fmt.Errorf("%s %q: %w: %s", program, args, err, out.Bytes())
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// home is a state directory, and the msb that works in it.
type home struct{ dir, msb string }

func (h home) run(ctx context.Context, args ...string) (took, cpu time.Duration, err error) {
	return run(ctx, []string{sandbox.EnvHome + "=" + h.dir}, h.msb, args...)
}

func (h home) all(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if _, _, err := h.run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// progress says what comes next, to standard error.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "== "+format+"\n", args...) }
