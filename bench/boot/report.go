//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/bench/internal/guestwork"
)

// report is everything that was measured, and what is made of it.
type report struct {
	Here    values
	Load    string // the machine's load average while Here was taken, of 1 minute
	Inner   values
	Targets []target
	set     figures.Set // every value
}

// target is a bound that msb sets itself.
type target struct {
	What    string  `json:"what"`
	Bound   float64 `json:"bound"`
	Unit    string  `json:"unit"` // s, MiB, MB or "x": times the peer
	Got     float64 `json:"got"`
	Reached bool    `json:"reached"`
}

// The bounds, from the project's own goals. They hold for medians.
const (
	maxColdStart  = 2.5 // seconds, QEMU emulation, warm caches
	maxWarmStart  = 0.5 // seconds, the same
	maxRunRatio   = 0.6 // of microsandbox's run
	maxExecRatio  = 0.5 // of microsandbox's exec
	maxCopyRatio  = 0.3 // of microsandbox's run, QEMU on KVM
	maxCopyMemory = 48  // MiB, of VMM and supervisor of each of some idle copies
	maxSupervisor = 40  // MiB resident
	maxAgent      = 10  // MB (10^6 bytes) on disk
)

// judge compares what was measured with the bounds.
func (r *report) judge() {
	add := func(what, unit string, got, bound float64) {
		r.Targets = append(r.Targets, target{What: what, Unit: unit, Got: got, Bound: bound, Reached: got <= bound})
	}
	if f := r.Here; f != nil {
		add("QEMU emulation: cold start to first output", "s", f.spread(seriesFirst).Median, maxColdStart)
		add("QEMU emulation: start from a saved machine to first output", "s", f.spread(seriesWarmFirst).Median, maxWarmStart)
		add("QEMU emulation: supervisor resident", "MiB", f.spread(seriesSupervisor).Max, maxSupervisor)
		add("agentd on disk", "MB", f.spread(seriesAgent).Max*(1<<20)/1e6, maxAgent)
	}
	f := r.Inner
	ofDisk := func(series string, bound float64) {
		if len(f[diskPrefix+series]) > 0 {
			got := f.spread(series).Median / f.spread(diskPrefix+series).Median
			r.Targets = append(r.Targets, target{What: "libkrun: -v directory, of the guest's disk: " + series, Unit: "x", Got: got, Bound: bound, Reached: got >= bound})
		}
	}
	ofDisk(guestwork.Meta, guestwork.MinMetaRatio)
	ofDisk(guestwork.Read, guestwork.MinReadRatio)
	if len(f[seriesSupervisor]) == 0 { // there is no inner run, or it is of work alone
		return
	}
	add("libkrun: supervisor resident", "MiB", f.spread(seriesSupervisor).Max, maxSupervisor)
	add("QEMU on KVM: memory of an idle copy", "MiB", f.spread(seriesCopyMemory).Max, maxCopyMemory)
	if len(f[peerPrefix+seriesFirst]) == 0 {
		return
	}
	add("QEMU on KVM: run as a copy to first output, of microsandbox's run", "x",
		f.spread(seriesCopyFirst).Median/f.spread(peerPrefix+seriesFirst).Median, maxCopyRatio)
	add("libkrun: run to first output, of microsandbox's", "x", ratio(f, seriesFirst), maxRunRatio)
	add("libkrun: run to exit, of microsandbox's", "x", ratio(f, seriesRun), maxRunRatio)
	add("libkrun: run on this machine's clock, of microsandbox's", "x", ratio(f, seriesWall), maxRunRatio)
	add("libkrun: exec, of microsandbox's", "x", ratio(f, seriesExec), maxExecRatio)
	add("libkrun: exec + start of a process, of microsandbox's exec", "x", execWithProcess(f), maxExecRatio)
}

func ratio(f values, series string) float64 {
	return f.spread(series).Median / f.spread(peerPrefix+series).Median
}

// execWithProcess compares like with like: each of microsandbox's execs starts
// a process of its command line tool, ours are calls of a program that runs.
func execWithProcess(f values) float64 {
	return (f.spread(seriesExec).Median + f.spread(seriesProcess).Median) / f.spread(peerPrefix+seriesExec).Median
}

// rows are what the tables show, in order.
var rows = []struct{ series, name, format string }{
	{seriesFirst, "run: to first output, s", "%.3f"},
	{seriesRun, "run: to exit, s", "%.3f"},
	{seriesWarmFirst, "run from a saved machine: to first output, s", "%.3f"},
	{seriesWarmRun, "run from a saved machine: to exit, s", "%.3f"},
	{seriesWall, "the same on this machine's clock, s", "%.1f"},
	{seriesCopyFirst, "run as a copy, QEMU on KVM: to first output, s", "%.3f"},
	{seriesCopyRun, "run as a copy, QEMU on KVM: to exit, s", "%.3f"},
	{seriesCopyMemory, "idle copies, QEMU on KVM: proportional memory of each, MiB", "%.1f"},
	{seriesReady, "start until ready, s", "%.3f"},
	{seriesExec, "exec of /bin/true, s", "%.4f"},
	{seriesClose, "close, s", "%.3f"},
	{seriesProcess, "the tool's own start (--version), s", "%.4f"},
	{seriesSupervisor, "supervisor resident, MiB", "%.1f"},
	{seriesVMM, "VMM resident, MiB", "%.1f"},
	{seriesAgent, "agentd's disk, MiB", "%.2f"},
	{seriesCopyIn, "cp of 32 MiB into a guest, MiB/s", "%.1f"},
	{seriesCopyOut, "cp of 32 MiB out of a guest, MiB/s", "%.1f"},
	{guestwork.Write, "-v directory: " + guestwork.Write, "%.1f"},
	{guestwork.Read, "-v directory: " + guestwork.Read, "%.1f"},
	{guestwork.Meta, "-v directory: " + guestwork.Meta, "%.0f"},
	{guestwork.Make, "  " + guestwork.Make, "%.0f"},
	{guestwork.Stat, "  " + guestwork.Stat, "%.0f"},
	{guestwork.Missing, "  " + guestwork.Missing, "%.0f"},
	{guestwork.MissingAgain, "  " + guestwork.MissingAgain, "%.0f"},
	{guestwork.List, "  " + guestwork.List, "%.0f"},
	{guestwork.ReadSmall, "  " + guestwork.ReadSmall, "%.0f"},
	{guestwork.ReadAgain, "  " + guestwork.ReadAgain, "%.0f"},
	{guestwork.Rename, "  " + guestwork.Rename, "%.0f"},
	{guestwork.Remove, "  " + guestwork.Remove, "%.0f"},
	{diskPrefix + guestwork.Write, "own disk: " + guestwork.Write, "%.1f"},
	{diskPrefix + guestwork.Read, "own disk: " + guestwork.Read, "%.1f"},
	{diskPrefix + guestwork.Meta, "own disk: " + guestwork.Meta, "%.0f"},
	{seriesBroken, "attempts that emulation broke", "%.0f"},
}

func (r *report) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if r.Here != nil {
		fmt.Fprintf(w, "QEMU emulation on this machine (%d CPUs, load %s)\tmin\tmedian\tmax\tn\n", runtime.NumCPU(), r.Load)
		for _, row := range rows {
			writeRow(w, r.Here, row.series, row.name, row.format, false)
		}
		fmt.Fprintln(w)
	}
	if r.Inner != nil {
		fmt.Fprintf(w, "libkrun in an emulated host\tmin\tmedian\tmax\tn\tmicrosandbox %s: min\tmedian\tmax\tmsb/microsandbox\n", peerVersion)
		for _, row := range rows {
			writeRow(w, r.Inner, row.series, row.name, row.format, true)
		}
		fmt.Fprintln(w)
	}
	if len(r.Targets) > 0 {
		fmt.Fprintln(w, "target\tgot\tbound\treached")
	}
	for _, t := range r.Targets {
		fmt.Fprintf(w, "%s\t%.2f %s\t%g %s\t%s\n", t.What, t.Got, t.Unit, t.Bound, t.Unit, map[bool]string{true: "yes", false: "NO"}[t.Reached])
	}
	if r.Inner != nil {
		fmt.Fprintln(w, notes)
	}
	return w.Flush()
}

// notes say how to read the table, and what is not the same on both sides.
const notes = `
Medians are compared; of what is counted per second, more is better. The emulated
host's clock counts instructions while there are any, so its seconds are no seconds
of a real machine and other load hardly shows in them; the row on this machine's
clock has what emulating them cost, and does show it.
Not the same on both sides: microsandbox's exec starts a process of its command
line tool each time, ours is a call of the Go SDK in a program that runs (the
last target adds the start of msb's own process to it); microsandbox's root is a
directory shared by virtiofs, ours a disk with an overlay; microsandbox's VMM and
network stack are one process, ours are two. microsandbox's VMM serves a -v
directory by virtiofs; ours is served by the supervisor, which the guest's agent
asks. Copies are by each one's command line, the start of its process included.`

func writeRow(w io.Writer, f values, series, name, format string, withPeer bool) {
	s, p := f.spread(series), f.spread(peerPrefix+series)
	if s.N == 0 && p.N == 0 {
		return
	}
	cells := func(s figures.Spread) string {
		if s.N == 0 {
			return "–\t–\t–"
		}
		return fmt.Sprintf(format+"\t"+format+"\t"+format, s.Min, s.Median, s.Max)
	}
	fmt.Fprintf(w, "%s\t%s\t%d", name, cells(s), s.N)
	if withPeer {
		fmt.Fprintf(w, "\t%s\t", cells(p))
		if s.N > 0 && p.N > 0 && p.Median > 0 {
			fmt.Fprintf(w, "%.2f", s.Median/p.Median)
		}
	}
	fmt.Fprintln(w)
}

// writeJSON prints every value and its spread.
func (r *report) writeJSON(out io.Writer) error {
	type series struct {
		figures.Spread
		Values []float64 `json:"values"`
	}
	all := func(f values) map[string]series {
		m := map[string]series{}
		for name, values := range f {
			m[name] = series{f.spread(name), values}
		}
		return m
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"cpus": runtime.NumCPU(), "load": r.Load, "microsandbox": peerVersion,
		"here": all(r.Here), "inner": all(r.Inner), "targets": r.Targets,
	})
}
