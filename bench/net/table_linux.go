package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one subject's figures. CPU is seconds of the subject's process for each
// GB; allocations are for each MB.
type row struct {
	result
	name                 string
	cpuUp, cpuDown       float64
	allocsUp, allocsDown float64
	idle                 float64 // bytes for each of idleFlows
}

// medianRow is the median of each figure.
func medianRow(rows []row) row {
	of := func(figure func(row) float64) float64 {
		v := make([]float64, len(rows))
		for i, r := range rows {
			v[i] = figure(r)
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return row{
		name: rows[0].name,
		result: result{
			Up1: of(func(r row) float64 { return r.Up1 }), Up8: of(func(r row) float64 { return r.Up8 }),
			Down1: of(func(r row) float64 { return r.Down1 }), Down8: of(func(r row) float64 { return r.Down8 }),
			Connects:    of(func(r row) float64 { return r.Connects }),
			ConnectByte: time.Duration(of(func(r row) float64 { return float64(r.ConnectByte) })),
			UDP:         time.Duration(of(func(r row) float64 { return float64(r.UDP) })),
		},
		cpuUp: of(func(r row) float64 { return r.cpuUp }), cpuDown: of(func(r row) float64 { return r.cpuDown }),
		allocsUp: of(func(r row) float64 { return r.allocsUp }), allocsDown: of(func(r row) float64 { return r.allocsDown }),
		idle: of(func(r row) float64 { return r.idle }),
	}
}

// printTable shows figures and, for rates, the part of the first row's.
func printTable(w io.Writer, rows []row) {
	if len(rows) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "subject\tup 1\tup 8\tdown 1\tdown 8\tconnects/s\tconnect+1 B\tUDP RTT\tCPU s/GB up\tdown\tallocs/MB up\tdown\tidle flow\t")
	base := rows[0]
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t%.2f\t%s\t%s\t%s\t\n", r.name,
			rate(r.Up1, base.Up1), rate(r.Up8, base.Up8), rate(r.Down1, base.Down1), rate(r.Down8, base.Down8),
			r.Connects, r.ConnectByte.Round(time.Microsecond), r.UDP.Round(time.Microsecond),
			r.cpuUp, r.cpuDown, count(r.allocsUp), count(r.allocsDown), count(r.idle))
	}
	_ = t.Flush()
	fmt.Fprintln(w, "rates in GB/s, in brackets as a part of the first row; bytes for each of", idleFlows, "idle flows")
}

func rate(v, of float64) string { return fmt.Sprintf("%.2f (%.2f)", v/1e9, v/of) }

func count(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}
