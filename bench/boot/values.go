//go:build linux

package main

import (
	"strings"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
)

// values are those of each series, in seconds, MiB or a number as the name says. Those of work are named as bench/work's
// are: "read in order, MiB/s".
type values map[string][]float64

// The series. Those of the peer have its prefix.
const (
	seriesFirst      = "run_first_output_s"
	seriesRun        = "run_exit_s"
	seriesWarmFirst  = "warm_run_first_output_s"
	seriesWarmRun    = "warm_run_exit_s"
	seriesWall       = "run_wall_outside_s"
	seriesReady      = "start_to_ready_s"
	seriesExec       = "exec_s"
	seriesClose      = "close_s"
	seriesProcess    = "process_start_s"
	seriesSupervisor = "supervisor_mib"
	seriesVMM        = "vmm_mib"
	seriesAgent      = "agentd_disk_mib"
	seriesBroken     = "broken_attempts"

	seriesCopyFirst  = "copy_run_first_output_s"
	seriesCopyRun    = "copy_run_exit_s"
	seriesCopyMemory = "copy_idle_mib"

	seriesCopyIn  = "copy in, MiB/s"
	seriesCopyOut = "copy out, MiB/s"

	peerPrefix = "microsandbox_"
	diskPrefix = "own_disk_" // of the work on the guest's own disk
)

func (f values) add(series string, v float64) { f[series] = append(f[series], v) }

func (f values) took(series string, d time.Duration) { f.add(series, d.Seconds()) }

func (f values) merge(other values) {
	for series, values := range other {
		f[series] = append(f[series], values...)
	}
}

func (f values) spread(series string) figures.Spread { return figures.Of(f[series]) }

// record adds the series to those of benchstat, in base units. Those of the peer are of another subject.
func (f values) record(set *figures.Set, where string) {
	for _, row := range rows {
		what, unit, scale := row.series, figures.Seconds, 1.0
		switch {
		case strings.HasPrefix(what, diskPrefix): // below, beside the directory's
			continue
		case strings.HasSuffix(what, "_mib"):
			what, unit, scale = strings.TrimSuffix(what, "_mib"), figures.Bytes, 1<<20
		case strings.HasSuffix(what, "_s"):
			what = strings.TrimSuffix(what, "_s")
		case strings.Contains(what, ", "):
			unit, scale = figures.Unit(what)
			what, _, _ = strings.Cut(what, ", ")
			what = "work/" + what
		default:
			continue
		}
		ours := figures.OfMsb
		if len(f[seriesWarmFirst]) > 0 { // beside starts from a saved machine stand those that boot
			switch row.series {
			case seriesFirst, seriesRun:
				ours = "msb --cold"
			case seriesWarmFirst, seriesWarmRun:
				what = strings.TrimPrefix(what, "warm_")
			}
		}
		for _, v := range f[row.series] {
			set.Add("Boot/"+where+"/"+what, ours, unit, v*scale)
		}
		for _, v := range f[peerPrefix+row.series] {
			set.Add("Boot/"+where+"/"+what, "microsandbox", unit, v*scale)
		}
		for _, v := range f[diskPrefix+row.series] {
			set.Add("Boot/"+where+"/"+what, "own-disk", unit, v*scale)
		}
	}
}
