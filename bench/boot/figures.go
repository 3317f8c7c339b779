//go:build linux

package main

import (
	"slices"
	"time"
)

// figures are the values of each series, in seconds, MiB or a number as the name says.
type figures map[string][]float64

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

	peerPrefix = "microsandbox_"
)

func (f figures) add(series string, v float64) { f[series] = append(f[series], v) }

func (f figures) took(series string, d time.Duration) { f.add(series, d.Seconds()) }

func (f figures) merge(other figures) {
	for series, values := range other {
		f[series] = append(f[series], values...)
	}
}

// spread is what is said of a series.
type spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func (f figures) spread(series string) spread {
	v := slices.Sorted(slices.Values(f[series]))
	if len(v) == 0 {
		return spread{}
	}
	median := v[len(v)/2]
	if len(v)%2 == 0 {
		median = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return spread{N: len(v), Min: v[0], Median: median, Max: v[len(v)-1]}
}
