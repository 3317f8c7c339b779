package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is something that must not grow.
type figure struct {
	name string
	unit int64 // what one is in the table
	// slack is how far the median of the last third may be above that of the first, part how far as a part of it.
	slack int64
	part  float64
}

// figures are in the order of a sample.
var figures = []figure{
	{name: "processes", unit: 1},
	{name: "descriptors", unit: 1, slack: 2},
	{name: "goroutines", unit: 1, slack: 2},
	{name: "caller MB", unit: 1e6, slack: 6e6, part: 0.1},
	{name: "supervisor MB", unit: 1e6, slack: 6e6, part: 0.1},
	{name: "VMM MB", unit: 1e6, slack: 24e6, part: 0.1},
	{name: "guest processes", unit: 1, slack: 3}, // its kernel's threads come and go,
	{name: "disk MB", unit: 1e6, slack: 4e6},
}

// minRounds is how many rounds a verdict needs: in the first ones, heaps grow to the size that they keep.
const minRounds = 30

// sample is what the figures were after one round.
type sample []int64

// thirds are the medians of the first third of the samples and of the last, for one figure.
func thirds(all []sample, i int) (first, last int64) {
	n := len(all) / 3
	return median(all[:n], i), median(all[len(all)-n:], i)
}

func median(all []sample, i int) int64 {
	values := make([]int64, 0, len(all))
	for _, s := range all {
		values = append(values, s[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// allowed is how far f may be above first.
func (f *figure) allowed(first int64) int64 { return max(f.slack, int64(f.part*float64(first))) }

// grown are the figures that grew beyond their slack.
func grown(all []sample) (names []string) {
	for i := range figures {
		if first, last := thirds(all, i); last-first > figures[i].allowed(first) {
			names = append(names, figures[i].name)
		}
	}
	return names
}

// row is a line of the table.
func row(head string, s sample) string {
	var b strings.Builder
	b.WriteString(head)
	for i, f := range figures {
		if f.unit == 1 {
			fmt.Fprintf(&b, "\t%d", s[i])
			continue
		}
		fmt.Fprintf(&b, "\t%.1f", float64(s[i])/float64(f.unit))
	}
	return b.String()
}

// summary has the medians of the thirds, and what is allowed between them.
func summary(all []sample) string {
	first, last, slack := make(sample, len(figures)), make(sample, len(figures)), make(sample, len(figures))
	for i := range figures {
		first[i], last[i] = thirds(all, i)
		slack[i] = figures[i].allowed(first[i])
	}
	return table(row("first third", first), row("last third", last), row("may grow", slack))
}

func table(rows ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "round"
	for _, f := range figures {
		head += "\t" + f.name
	}
	for _, r := range append([]string{head}, rows...) {
		_, _ = fmt.Fprintln(w, r+"\t") // into a builder
	}
	_ = w.Flush()
	return b.String()
}
