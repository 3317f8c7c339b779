package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

// statsFlags is the command line of `msb stats`.
type statsFlags struct {
	list            listFlags
	noStream, watch bool
}

func newStatsCommand(ui *ui) *cobra.Command {
	var f statsFlags
	c := &cobra.Command{
		Use:   "stats [flags] [NAME...]",
		Short: "Show what sandboxes use, and what their gateways let through and denied",
		Long: `Shows processor, memory, disk and network of the sandboxes that run, or of those that
are named, and what their gateways count: flows that are alive, and denials. On a terminal
it goes on, a picture a second, until Ctrl-C. docs/metrics.md says what each figure is.`,
		Example: `  msb stats
  msb stats --no-stream web
  msb stats --no-stream --json | jq '.[] | {name, denied: .gateway.denied}'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if f.noStream && f.watch {
				return &usageError{err: errors.New("--watch and --no-stream: give one of them"), help: "msb stats --help"}
			}
			if _, err := f.list.check(c); err != nil {
				return err
			}
			out, ok := ui.out.(*checkedWriter)
			terminal := ok && out.Writer == os.Stdout && isTerminal(os.Stdout)
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				s := &statsView{ui: ui, c: c, f: &f, stream: (terminal || f.watch) && !f.noStream, clear: terminal, pause: time.After}
				return s.run(ctx, func() ([]sandbox.Usage, error) { return home.Usage(ctx, args...) })
			})
		},
	}
	f.list.register(c)
	c.Flags().BoolVar(&f.noStream, "no-stream", false, "print once; it takes a second, in which the processor's use is measured")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on every second, as on a terminal: with --json an array each time")
	return c
}

// statsRow is a line of `msb stats`.
type statsRow struct {
	sandbox.Usage
	// CPUPercent is relative to one processor, as docker's: a guest with two may have 200.
	CPUPercent float64 `json:"cpu_percent"`
}

// statsEvery is the time between two pictures.
const statsEvery = time.Second

// statsView shows figures, again and again if it streams.
type statsView struct {
	ui            *ui
	c             *cobra.Command
	f             *statsFlags
	stream, clear bool
	pause         func(time.Duration) <-chan time.Time
}

func (s *statsView) run(ctx context.Context, ask func() ([]sandbox.Usage, error)) error {
	before, err := ask()
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.pause(statsEvery):
		}
		now, err := ask()
		if err != nil {
			return err
		}
		if err := s.show(statsOf(before, now)); err != nil || !s.stream {
			return err
		}
		before = now
	}
}

func (s *statsView) show(rows []statsRow) error {
	if s.stream && s.clear {
		const home, below = "\x1b[H", "\x1b[J" // the cursor to the top, and what is below it away
		if err := s.ui.print(home + below); err != nil {
			return err
		}
	}
	return printList(s.ui, s.c, &s.f.list, rows, func(r *statsRow) string { return r.Name }, statsRows)
}

// statsOf adds the processor's load between two answers of the same run.
func statsOf(before, now []sandbox.Usage) []statsRow {
	last := make(map[string]*sandbox.Usage, len(before))
	for i := range before {
		last[before[i].Name] = &before[i]
	}
	rows := make([]statsRow, len(now))
	for i := range now {
		rows[i].Usage = now[i]
		was := last[now[i].Name]
		if was == nil || !was.Started.Equal(now[i].Started) || now[i].Running <= was.Running {
			continue
		}
		rows[i].CPUPercent = 100 * float64(now[i].CPU-was.CPU) / float64(now[i].Running-was.Running)
	}
	return rows
}

func statsRows(all []statsRow) [][]string {
	rows := append(make([][]string, 0, 1+len(all)), []string{"NAME", "CPU %", "MEM USAGE / LIMIT", "MEM %", "NET I/O", "DISK", "PIDS", "FLOWS", "DENIED"})
	for i := range all {
		rows = append(rows, all[i].cells())
	}
	return rows
}

func (r *statsRow) cells() []string {
	if r.Problem != "" {
		return []string{r.Name, "-", audit.Printable(r.Problem)}
	}
	memory, share, pids, net, flows, denied := "-", "-", "-", "-", "-", "-"
	if g := r.Guest; g != nil {
		memory, pids = progressbar.Bytes(g.MemoryUsed)+" / "+progressbar.Bytes(r.Memory), strconv.Itoa(g.Processes)
		share = fmt.Sprintf("%.2f%%", 100*float64(g.MemoryUsed)/float64(max(r.Memory, 1)))
	}
	if g := r.Gateway; g != nil {
		net, flows = progressbar.Bytes(g.BytesDown)+" / "+progressbar.Bytes(g.BytesUp), strconv.Itoa(g.Flows)
		var n uint64
		for _, d := range g.Denied {
			n += d.Count
		}
		denied = strconv.FormatUint(n, 10)
	}
	return []string{r.Name, fmt.Sprintf("%.2f%%", r.CPUPercent), memory, share, net, progressbar.Bytes(r.DiskUsed), pids, flows, denied}
}
