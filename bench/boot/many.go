//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/sandbox"
)

// stagger is between the starts of sandboxes that are started one after the other without waiting.
const stagger = 200 * time.Millisecond

// The ways in which many sandboxes are started.
var ways = []string{"one by one", "staggered", "burst"}

// config is that of every sandbox started by the SDK.
func (m *ours) config(cold bool) sandbox.Config {
	return sandbox.Config{
		Home: m.home, Program: m.program, Backend: m.backend, CPUs: guestCPUs, Memory: guestMemoryMiB << 20, Cold: cold,
	}
}

// interactive starts a sandbox and returns how long it took until the first command in it had ended, which is
// ComputeSDK's time to interactive.
func (m *ours) interactive(ctx context.Context, cold bool) (sb *sandbox.Sandbox, took time.Duration, err error) {
	start := time.Now()
	if sb, err = sandbox.Start(ctx, m.config(cold)); err != nil {
		return nil, 0, err
	}
	var out bytes.Buffer
	st, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"echo", "hi"}, Stdout: &out})
	if err == nil && (st.Code != 0 || out.String() != "hi\n") {
		err = fmt.Errorf("echo in the guest: exit code %d, %q", st.Code, out.String())
	}
	took = time.Since(start)
	if err != nil {
		return nil, 0, errors.Join(err, sb.Close())
	}
	return sb, took, nil
}

// waysSeries is that of one way of starting.
func waysSeries(way string) string { return "TTI/" + way }

// subjectOf says which starts a series is of.
func subjectOf(cold bool) string {
	if cold {
		return "msb --cold"
	}
	return figures.OfMsb
}

// startMany starts n sandboxes each way, from a saved machine and booted, in turns.
func (m *ours) startMany(ctx context.Context, n int, set *figures.Set) error {
	for _, way := range ways {
		for _, cold := range []bool{false, true} {
			progress("%d sandboxes %s, cold %v", n, way, cold)
			if err := m.startAll(ctx, way, n, cold, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// startAll starts n sandboxes one way. Each is closed once it has answered.
func (m *ours) startAll(ctx context.Context, way string, n int, cold bool, set *figures.Set) error {
	var mu sync.Mutex
	var failed error
	one := func() {
		sb, took, err := m.interactive(ctx, cold)
		if err == nil {
			err = sb.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		if failed = errors.Join(failed, err); err == nil {
			set.Add(waysSeries(way), subjectOf(cold), figures.Seconds, took.Seconds())
		}
	}
	var all sync.WaitGroup
	for range n {
		switch way {
		case "one by one":
			one()
		case "staggered":
			all.Go(one)
			time.Sleep(stagger)
		default:
			all.Go(one)
		}
	}
	all.Wait()
	return failed
}

// The series of sandboxes that are idle beside each other.
func startBeside(n int) string  { return fmt.Sprintf("Growth/sandboxes/start/n=%d", n) }
func memoryBeside(n int) string { return fmt.Sprintf("Growth/sandboxes/memory/n=%d", n) }

// grow keeps more and more sandboxes from a saved machine, each idle after one command, and measures how long the last
// of each count took to start and what each holds: the proportional set size of its supervisor and its VMM.
func (m *ours) grow(ctx context.Context, counts []int, set *figures.Set) (err error) {
	var open []*sandbox.Sandbox
	defer func() {
		for _, sb := range open {
			err = errors.Join(err, sb.Close())
		}
	}()
	for _, n := range counts {
		for len(open) < n {
			progress("sandbox %d of %d", len(open)+1, counts[len(counts)-1])
			sb, took, err := m.interactive(ctx, false)
			if err != nil {
				return fmt.Errorf("sandbox %d: %w", len(open)+1, err)
			}
			if open = append(open, sb); len(open) == n {
				set.Add(startBeside(n), figures.OfMsb, figures.Seconds, took.Seconds())
			}
		}
		sizes, err := sandboxMemory()
		if err != nil {
			return err
		}
		for _, size := range sizes {
			set.Add(memoryBeside(n), figures.OfMsb, figures.Bytes, float64(size))
		}
	}
	return nil
}

// sandboxMemory is the proportional memory of each sandbox of this process: of its supervisor and of its VMM, in bytes.
func sandboxMemory() ([]int64, error) {
	list, err := processes()
	if err != nil {
		return nil, err
	}
	var sizes []int64
	for _, p := range below(list, os.Getpid()) {
		if len(p.argv) < 2 || p.argv[1] != sandbox.Verb {
			continue
		}
		pss := p.proportional()
		for _, q := range below(list, p.pid) {
			pss += q.proportional()
		}
		sizes = append(sizes, pss)
	}
	return sizes, nil
}

// writeMany prints what startMany and grow measured.
func writeMany(out io.Writer, counts []int, set *figures.Set) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "create to the end of the first echo, s\tmedian\tp95\tp99\tn")
	for _, way := range ways {
		for _, cold := range []bool{false, true} {
			v := set.Values(waysSeries(way), subjectOf(cold), figures.Seconds)
			fmt.Fprintf(w, "%s, %s\t%.3f\t%.3f\t%.3f\t%d\n", way, subjectOf(cold), figures.Median(v), figures.Quantile(v, 0.95), figures.Quantile(v, 0.99), len(v))
		}
	}
	fmt.Fprintln(w, "\nidle sandboxes from a saved machine\tstart of the last, s\tproportional memory of each, MiB\t")
	for _, n := range counts {
		var sizes []float64
		for _, v := range set.Values(memoryBeside(n), figures.OfMsb, figures.Bytes) {
			sizes = append(sizes, mib(int64(v)))
		}
		fmt.Fprintf(w, "%d\t%.3f\t%s\n", n, figures.Median(set.Values(startBeside(n), figures.OfMsb, figures.Seconds)), figures.Text("%.1f", sizes))
	}
	return w.Flush()
}

// countsUpTo are those of 1 to 50 that are not above most.
func countsUpTo(most int) []int {
	return slices.DeleteFunc([]int{1, 5, 10, 20, 50}, func(n int) bool { return n > most })
}

// proportional is the process's share of the memory that it maps, in bytes; 0 where it has ended.
func (p process) proportional() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
