//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
)

// values are those of each series, in milliseconds, MiB or bytes as the name says.
type values map[string][]float64

// The series. Those of the peer have its prefix.
const (
	seriesStart     = "start to the answer of initialize, ms"
	seriesFirstList = "tools/list, the first, ms"
	seriesList      = "tools/list, later ones, ms"
	seriesBytes     = "tools/list, bytes"
	seriesPSS       = "idle: proportional memory, MiB"
	seriesRSS       = "idle: resident memory, MiB"
	seriesToolExec  = "sandbox_exec of /bin/true, ms"
	seriesExec      = "Sandbox.Exec of /bin/true, ms"
	seriesToolCold  = "sandbox_run, the guest boots, ms"
	seriesCold      = "msb run, the guest boots, ms"
	seriesToolWarm  = "sandbox_run, saved machine, ms"
	seriesWarm      = "msb run, saved machine, ms"

	peerPrefix = "microsandbox-mcp: "
)

// The bounds, from the project's own goals. They hold for medians.
const (
	maxBytes    = 12_000
	maxList     = 10  // ms
	maxStart    = 50  // ms
	maxExecMore = 5   // ms
	maxRun      = 1.1 // times msb run
)

func (f values) add(series string, v float64) { f[series] = append(f[series], v) }

func (f values) took(series string, d time.Duration) {
	f.add(series, float64(d.Microseconds())/1000)
}

func (f values) median(series string) float64 { return figures.Median(f[series]) }

// pairs are series of msb mcp, and what each is compared with in the same run.
var pairs = [][2]string{{seriesToolExec, seriesExec}, {seriesToolCold, seriesCold}, {seriesToolWarm, seriesWarm}}

// idleSeries are measured of both servers.
var idleSeries = []string{seriesBytes, seriesFirstList, seriesList, seriesStart, seriesPSS, seriesRSS}

// set is everything in base units.
func (f values) set() *figures.Set {
	var set figures.Set
	add := func(series, subject, from string) {
		what, unit, _ := strings.Cut(series, ", ")
		for strings.Contains(unit, ", ") { // the unit comes last
			var more string
			more, unit, _ = strings.Cut(unit, ", ")
			what += " " + more
		}
		base, scale := figures.Seconds, 1e-3
		switch unit {
		case "MiB":
			base, scale = figures.Bytes, 1<<20
		case "bytes":
			base, scale = figures.Bytes, 1
		}
		for _, v := range f[from] {
			set.Add("MCP/"+strings.ReplaceAll(what, "/", "_"), subject, base, v*scale)
		}
	}
	for _, series := range idleSeries {
		add(series, figures.OfMsb, series)
		add(series, "microsandbox-mcp", peerPrefix+series)
	}
	for _, pair := range pairs {
		with, _, _ := strings.Cut(pair[1], ",")
		add(pair[0], figures.OfMsb, pair[0])
		add(pair[0], with, pair[1])
	}
	return &set
}

func (f values) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	load, _ := os.ReadFile("/proc/loadavg") // it is only shown
	one, _, _ := strings.Cut(string(load), " ")
	fmt.Fprintf(w, "ratios of medians (%d CPUs, load %s)\n", runtime.NumCPU(), one)
	for _, series := range idleSeries {
		if peer := f.median(peerPrefix + series); peer > 0 {
			fmt.Fprintf(w, "msb mcp / microsandbox-mcp: %s\t%.2f\n", series, f.median(series)/peer)
		}
	}
	for _, pair := range pairs {
		if base := f.median(pair[1]); base > 0 {
			fmt.Fprintf(w, "%s / %s\t%.2f\n", pair[0], pair[1], f.median(pair[0])/base)
		}
	}
	fmt.Fprintln(w, "\n\tmin\tmedian\tmax\tn")
	for _, prefix := range []string{"", peerPrefix} {
		for _, series := range []string{
			seriesBytes, seriesFirstList, seriesList, seriesStart, seriesPSS, seriesRSS, seriesToolExec, seriesExec,
			seriesToolCold, seriesCold, seriesToolWarm, seriesWarm,
		} {
			if v := f[prefix+series]; len(v) > 0 {
				fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%d\n", prefix+series, slices.Min(v), f.median(prefix+series), slices.Max(v), len(v))
			}
		}
	}
	fmt.Fprintln(w, "\ntarget\tgot\tbound\treached")
	target := func(what string, got, bound float64) {
		fmt.Fprintf(w, "%s\t%.2f\t%g\t%s\n", what, got, bound, map[bool]string{true: "yes", false: "NO"}[got <= bound])
	}
	target(seriesBytes, f.median(seriesBytes), maxBytes)
	target(seriesFirstList, f.median(seriesFirstList), maxList)
	target(seriesStart, f.median(seriesStart), maxStart)
	if len(f[seriesExec]) > 0 {
		target("sandbox_exec over Sandbox.Exec, ms", f.median(seriesToolExec)-f.median(seriesExec), maxExecMore)
	}
	if len(f[seriesCold]) > 0 {
		target("sandbox_run of msb run, the guest boots, times", f.median(seriesToolCold)/f.median(seriesCold), maxRun)
		target("sandbox_run of msb run, saved machine, times", f.median(seriesToolWarm)/f.median(seriesWarm), maxRun)
	}
	return w.Flush()
}
