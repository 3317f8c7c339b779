package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/msb-project/msb/bench/internal/figures"
)

// row is one subject's figures of one round. CPU is seconds of the subject's process for each
// GB; allocations are for each MB.
type row struct {
	result
	cpuUp, cpuDown       float64
	allocsUp, allocsDown float64
	idle                 float64 // bytes for each of idleFlows
}

// column is one figure: how it is called in the table and among the series, and how it is shown.
type column struct {
	head, series, unit string
	of                 func(row) float64
	show               func(v float64) string
}

var allColumns = []column{
	{"up 1", "Net/up/flows=1", figures.Rate, func(r row) float64 { return r.Up1 }, gigabytes},
	{"up 8", "Net/up/flows=8", figures.Rate, func(r row) float64 { return r.Up8 }, gigabytes},
	{"down 1", "Net/down/flows=1", figures.Rate, func(r row) float64 { return r.Down1 }, gigabytes},
	{"down 8", "Net/down/flows=8", figures.Rate, func(r row) float64 { return r.Down8 }, gigabytes},
	{"connects/s", "Net/connects", "conns/s", func(r row) float64 { return r.Connects }, count},
	{"connect+1 B", "Net/connect+1B", figures.Seconds, func(r row) float64 { return r.ConnectByte.Seconds() }, micros},
	{"UDP RTT", "Net/udp_round_trip", figures.Seconds, func(r row) float64 { return r.UDP.Seconds() }, micros},
	{"CPU s/GB up", "Net/cpu/way=up", "sec/GB", func(r row) float64 { return r.cpuUp }, hundredths},
	{"down", "Net/cpu/way=down", "sec/GB", func(r row) float64 { return r.cpuDown }, hundredths},
	{"allocs/MB up", "Net/allocs/way=up", "allocs/MB", func(r row) float64 { return r.allocsUp }, count},
	{"down", "Net/allocs/way=down", "allocs/MB", func(r row) float64 { return r.allocsDown }, count},
	{"idle flow", "Net/idle_flow", figures.Bytes, func(r row) float64 { return r.idle }, count},
}

// growthColumns are downloads on more and more flows.
func growthColumns() (all []column) {
	for i, n := range growth {
		all = append(all, column{strconv.Itoa(n), "Growth/flows/n=" + strconv.Itoa(n), figures.Rate,
			func(r row) float64 { return r.Grown[i] }, gigabytes})
	}
	return all
}

// table is what all subjects reached, in the order in which they were measured first.
type table struct {
	columns  []column
	subjects []string
	set      figures.Set
}

// ours are the subjects that are msb; the first is what sandboxes have.
const ours = "msb sandbox (mtu 65520)"

// add adds one round. A figure that the subject can't have is 0 and is left out.
func (t *table) add(subject string, r row) {
	if subject == ours {
		subject = figures.OfMsb
	}
	if !slices.Contains(t.subjects, subject) {
		t.subjects = append(t.subjects, subject)
	}
	for _, c := range t.columns {
		if v := c.of(r); v != 0 {
			t.set.Add(c.series, subject, c.unit, v)
		}
	}
}

// print shows medians and, for rates, the part of the first row's.
func (t *table) print(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "subject\t")
	for _, c := range t.columns {
		fmt.Fprint(out, c.head, "\t")
	}
	fmt.Fprintln(out)
	for _, subject := range t.subjects {
		fmt.Fprint(out, subject, "\t")
		for _, c := range t.columns {
			v := figures.Median(t.set.Values(c.series, subject, c.unit))
			fmt.Fprint(out, c.show(v))
			if c.unit == figures.Rate {
				fmt.Fprintf(out, " (%.2f)", v/figures.Median(t.set.Values(c.series, t.subjects[0], c.unit)))
			}
			fmt.Fprint(out, "\t")
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush()
	fmt.Fprintln(w, "medians; rates in GB/s, in brackets as a part of the first row; microseconds; bytes for each of", idleFlows, "idle flows")
}

func gigabytes(v float64) string  { return fmt.Sprintf("%.2f", v/1e9) }
func micros(v float64) string     { return fmt.Sprintf("%.0f", v*1e6) }
func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }

func count(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}
