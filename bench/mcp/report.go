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
)

// figures are the values of each series, in milliseconds, MiB or bytes as the name says.
type figures map[string][]float64

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

func (f figures) add(series string, v float64) { f[series] = append(f[series], v) }

func (f figures) took(series string, d time.Duration) {
	f.add(series, float64(d.Microseconds())/1000)
}

func (f figures) median(series string) float64 {
	v := slices.Sorted(slices.Values(f[series]))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (f figures) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	load, _ := os.ReadFile("/proc/loadavg") // it is only shown
	one, _, _ := strings.Cut(string(load), " ")
	fmt.Fprintf(w, "ratios of medians (%d CPUs, load %s)\n", runtime.NumCPU(), one)
	for _, series := range []string{seriesBytes, seriesFirstList, seriesList, seriesStart, seriesPSS, seriesRSS} {
		if peer := f.median(peerPrefix + series); peer > 0 {
			fmt.Fprintf(w, "msb mcp / microsandbox-mcp: %s\t%.2f\n", series, f.median(series)/peer)
		}
	}
	for _, pair := range [][2]string{{seriesToolExec, seriesExec}, {seriesToolCold, seriesCold}, {seriesToolWarm, seriesWarm}} {
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
