package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
)

// lists measures msb ls of many sandboxes, all of them copies of one that msb has made.
func (o *options) lists(ctx context.Context, dir string, set *figures.Set) error {
	progress("%d sandboxes", o.recorded)
	h := home{dir, o.msb}
	const first = "n00000"
	if err := h.all(ctx, []string{"create", "-q", "--vm", "qemu", "--disk", "64M", first}); err != nil {
		return err
	}
	sandboxes := filepath.Join(dir, "sandboxes")
	text, err := os.ReadFile(filepath.Join(sandboxes, first, "sandbox.json"))
	if err != nil {
		return err
	}
	for i := 1; i < o.recorded; i++ {
		name := fmt.Sprintf("n%05d", i)
		if err := os.Mkdir(filepath.Join(sandboxes, name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sandboxes, name, "sandbox.json"), bytes.ReplaceAll(text, []byte(first), []byte(name)), 0o600); err != nil {
			return err
		}
	}
	time.Sleep(settled)
	took, cpu, err := h.run(ctx, "ls") // which makes the index
	if err != nil {
		return err
	}
	what := fmt.Sprintf("Life/ls/recorded=%d", o.recorded)
	set.Add(what+"/first", figures.OfMsb, figures.Seconds, took.Seconds())
	set.Add(what+"/first", figures.OfMsb, "cpu-sec/op", cpu.Seconds())
	for range 4 * o.rounds {
		for _, s := range []struct {
			subject string
			run     func() (took, cpu time.Duration, err error)
		}{
			{figures.OfMsb, func() (took, cpu time.Duration, err error) { return h.run(ctx, "ls") }},
			{"msb --version", func() (took, cpu time.Duration, err error) { return h.run(ctx, "--version") }},
			{"find", func() (took, cpu time.Duration, err error) {
				return run(ctx, nil, "find", sandboxes, "-maxdepth", "1", "-printf", "%f %i %T@ %C@\n")
			}},
		} {
			took, cpu, err := s.run()
			if err != nil {
				return err
			}
			set.Add(what, s.subject, figures.Seconds, took.Seconds())
			set.Add(what, s.subject, "cpu-sec/op", cpu.Seconds())
		}
	}
	return nil
}

// settled is how long a sandbox must have been as it is to be in the index.
const settled = 3 * time.Second
