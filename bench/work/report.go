//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/bench/internal/guestwork"
)

// values are those of each series, in the unit that its name ends with.
type values map[string][]float64

const (
	seriesFork        = "fork and exec in the guest, ms"
	seriesExec        = "Sandbox.Exec of /bin/true, ms"
	seriesDDIn        = "dd to the guest's disk, MiB/s"
	seriesDDOut       = "dd from the guest's disk, MiB/s"
	seriesCopyIn      = "msb cp in, MiB/s"
	seriesCopyOut     = "msb cp out, MiB/s"
	seriesCopyMemory  = "msb cp, most memory, MiB"
	seriesSmallMemory = "msb cp of 1 MiB, most memory, MiB"
	seriesGit         = "git status of 1,000 files, ms"
	seriesGo          = "go build of 10 packages, ms"
	seriesNPM         = "npm ci of 400 files, ms"
)

// The bounds, from the project's own goals. They hold for medians.
const (
	maxExecMore  = 15  // ms
	minCopyRatio = 0.5 // of dd
	maxCopyMore  = 16  // MiB of who copies, for a large file more than for a small one
)

func (f values) add(series string, v float64) { f[series] = append(f[series], v) }

func (f values) took(series string, d time.Duration) {
	f.add(series, float64(d.Microseconds())/1000)
}

func (f values) median(series string) float64 { return figures.Median(f[series]) }

// spread is how a series is shown.
func (f values) spread(series string) string { return figures.Text("%.1f", f[series]) }

// ownDisk is the subject that the figures on the guest's own disk are of, ownFork that of processes that it starts itself.
const (
	ownDisk = "own-disk"
	ownFork = "own-fork"
	ownDD   = "dd"
	ownFUSE = "fuse-in-guest"
)

// set is what benchstat reads.
func (b *bench) set() *figures.Set {
	var set figures.Set
	add := func(what, subject, series string, f values) {
		unit, scale := figures.Unit(series)
		for _, v := range f[series] {
			set.Add("Work/"+strings.ReplaceAll(what, "/", "_"), subject, unit, v*scale)
		}
	}
	add("exec", figures.OfMsb, seriesExec, b.f)
	add("exec", ownFork, seriesFork, b.f)
	add("copy in", figures.OfMsb, seriesCopyIn, b.f)
	add("copy in", ownDD, seriesDDIn, b.f)
	add("copy out", figures.OfMsb, seriesCopyOut, b.f)
	add("copy out", ownDD, seriesDDOut, b.f)
	add("copy memory", figures.OfMsb, seriesCopyMemory, b.f)
	for _, series := range slices.Sorted(maps.Keys(b.own)) {
		what, _, _ := strings.Cut(series, ",")
		add(what, figures.OfMsb, series, b.dir)
		add(what, ownDisk, series, b.own)
		add(what, ownFUSE, series, b.fuse)
	}
	return &set
}

func (b *bench) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	load, _ := os.ReadFile("/proc/loadavg") // it is only shown
	one, _, _ := strings.Cut(string(load), " ")
	fmt.Fprintf(w, "medians, least and most (%d CPUs, load %s, %d rounds)\n", runtime.NumCPU(), one, b.rounds)
	for _, series := range []string{seriesFork, seriesExec} {
		fmt.Fprintf(w, "%s\tp50 %.1f\tp99 %.1f\tn %d\n", series, b.f.median(series), figures.Quantile(b.f[series], 0.99), len(b.f[series]))
	}
	for _, series := range []string{seriesDDIn, seriesCopyIn, seriesDDOut, seriesCopyOut, seriesCopyMemory, seriesSmallMemory} {
		fmt.Fprintf(w, "%s\t%s\n", series, b.f.spread(series))
	}
	fmt.Fprintln(w, "\n\town disk\t-v …:rw\tFUSE in the guest\t-v / own disk, of the speed\tFUSE in the guest / own disk")
	for _, series := range slices.Sorted(maps.Keys(b.own)) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%.2f\n", series, b.own.spread(series), b.dir.spread(series), b.fuse.spread(series), b.ratio(b.dir, series), b.ratio(b.fuse, series))
	}
	fmt.Fprintln(w, "\ntarget\tgot\tbound\treached")
	target := func(what string, got, bound float64, reached bool) {
		fmt.Fprintf(w, "%s\t%.2f\t%g\t%s\n", what, got, bound, map[bool]string{true: "yes", false: "NO"}[reached])
	}
	least := func(what string, got, bound float64) { target(what, got, bound, got >= bound) }
	most := func(what string, got, bound float64) { target(what, got, bound, got <= bound) }
	most("exec p50 above the guest's own, ms", b.f.median(seriesExec)-b.f.median(seriesFork), maxExecMore)
	least("msb cp in / dd to the disk", b.f.median(seriesCopyIn)/b.f.median(seriesDDIn), minCopyRatio)
	least("msb cp out / dd to the disk", b.f.median(seriesCopyOut)/b.f.median(seriesDDIn), minCopyRatio)
	most(fmt.Sprintf("memory of msb cp, %d MiB above 1 MiB, MiB", b.copyMiB),
		figures.Of(b.f[seriesCopyMemory]).Max-figures.Of(b.f[seriesSmallMemory]).Min, maxCopyMore)
	least("metadata operations, of the guest's disk", b.ratio(b.dir, guestwork.Meta), guestwork.MinMetaRatio)
	least("reads in order, of the guest's disk", b.ratio(b.dir, guestwork.Read), guestwork.MinReadRatio)
	return w.Flush()
}

// ratio is the speed in a directory as a part of that on the guest's disk.
func (b *bench) ratio(f values, series string) float64 {
	own, dir := b.own.median(series), f.median(series)
	if strings.HasSuffix(series, ", ms") {
		own, dir = dir, own
	}
	if own == 0 {
		return 0
	}
	return dir / own
}
