package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

func TestProcessorUseIsOfOneRun(t *testing.T) {
	t.Parallel()
	run, other := time.Unix(1, 0), time.Unix(2, 0)
	before := []sandbox.Usage{{Name: "a", Started: run, Running: time.Second, CPU: time.Second}, {Name: "b", Started: run, Running: time.Hour, CPU: time.Hour}}
	now := []sandbox.Usage{
		{Name: "a", Started: run, Running: 3 * time.Second, CPU: 4 * time.Second},
		{Name: "b", Started: other, Running: time.Second, CPU: time.Second}, // restarted
		{Name: "c", Started: run, Running: time.Second, CPU: time.Second},   // new
	}
	rows := statsOf(before, now)
	if rows[0].CPUPercent != 150 || rows[1].CPUPercent != 0 || rows[2].CPUPercent != 0 {
		t.Errorf("%v", rows)
	}
}

// TestStatsStreamUntilTheyAreEnded lets three seconds pass.
func TestStatsStreamUntilTheyAreEnded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	tick := make(chan time.Time)
	go func() {
		for range 3 {
			tick <- time.Time{}
		}
		cancel()
	}()
	view := &statsView{
		ui: newUI(&out, &out), c: new(cobra.Command), f: new(statsFlags), stream: true, clear: true, pause: func(time.Duration) <-chan time.Time { return tick },
	}
	err := view.run(ctx, func() ([]sandbox.Usage, error) {
		return []sandbox.Usage{{Name: "web", Guest: &sandbox.GuestUsage{MemoryUsed: 1 << 20}, Memory: 4 << 20}, {Name: "hung", Problem: "no\x1banswer"}}, nil
	})
	if !errors.Is(err, context.Canceled) || strings.Count(out.String(), "\x1b[H\x1b[JNAME") != 3 || strings.Count(out.String(), "25.00%") != 3 || strings.Contains(out.String(), "no\x1banswer") {
		t.Errorf("%v:\n%q", err, out.String())
	}
}
