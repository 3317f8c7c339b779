package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/msb-project/msb/bench/internal/figures"
)

// targets are bounds of medians, in seconds: the project's own goals.
var targets = []struct {
	what  string
	bound float64
}{
	{"Life/ls/recorded=10000", 0.05},
	{"Life/clone/disk=1GiB/on=xfs", 0.2},
}

// write prints what was measured.
func write(set *figures.Set) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tmedian\tmin\tmax\tn")
	for name, values := range set.All() {
		v := figures.Of(values)
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.4f\t%d\n", strings.TrimPrefix(name, "Life/"), v.Median, v.Min, v.Max, v.N)
	}
	for _, t := range targets {
		if v := set.Values(t.what, figures.OfMsb, figures.Seconds); len(v) > 0 {
			fmt.Fprintf(w, "target: %s at most %g s\t%s\n", strings.TrimPrefix(t.what, "Life/"), t.bound, map[bool]string{true: "reached", false: "MISSED"}[figures.Median(v) <= t.bound])
		}
	}
	_ = w.Flush()
}
