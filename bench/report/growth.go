package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// growthGroup is the first part of the names of figures that depend on n: "Growth/what/n=10".
const growthGroup = "Growth"

var growing = regexp.MustCompile(`^` + growthGroup + `/(.+)/n=(\d+)$`)

// curve is a figure that grows with n.
type curve struct {
	title, unit string
	subjects    []string
	points      map[string]map[int]float64 // medians, by subject and n
}

// growth are all of them, in order.
func (r *results) growth() (all []*curve) {
	for _, w := range r.order {
		m := growing.FindStringSubmatch(w.name)
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			continue // beyond what an int holds
		}
		i := slices.IndexFunc(all, func(c *curve) bool { return c.title == spaced(m[1]) && c.unit == w.unit })
		if i < 0 {
			all = append(all, &curve{title: spaced(m[1]), unit: w.unit, points: map[string]map[int]float64{}})
			i = len(all) - 1
		}
		for _, subject := range r.subjects[w] {
			if all[i].points[subject] == nil {
				all[i].subjects = append(all[i].subjects, subject)
				all[i].points[subject] = map[int]float64{}
			}
			all[i].points[subject][n] = spreadOf(r.values[w][subject]).median
		}
	}
	return all
}

// counts are the values of n, ascending.
func (c *curve) counts() (all []int) {
	for _, points := range c.points {
		for n := range points {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// table writes the curve as multiples of where each begins.
func (c *curve) table(b *strings.Builder) {
	counts := c.counts()
	fmt.Fprintf(b, "| %s, %s |", c.title, c.unit)
	for _, n := range counts {
		fmt.Fprintf(b, " n = %d |", n)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(counts)))
	for _, subject := range c.subjects {
		fmt.Fprintf(b, "| %s |", spaced(subject))
		first := c.points[subject][counts[0]]
		for _, n := range counts {
			v, ok := c.points[subject][n]
			switch {
			case !ok:
				b.WriteString(" – |")
			case n == counts[0]:
				fmt.Fprintf(b, " 1 (%s) |", withUnit(v, c.unit))
			default:
				fmt.Fprintf(b, " %s |", short(v/first))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// file is the name of the curve's plot.
func (c *curve) file() string {
	return "bench-" + strings.Map(func(r rune) rune {
		if r == ' ' || r == '/' {
			return '-'
		}
		return r
	}, c.title) + ".svg"
}

// draw writes the curve as a plot with logarithmic axes. One point is no curve and is not drawn.
func (c *curve) draw(path string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, "n", c.unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = powers(""), powers(c.unit)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	var lines []any
	for _, subject := range c.subjects {
		var points plotter.XYs
		for _, n := range c.counts() {
			if v := c.points[subject][n]; v > 0 { // what a logarithm has
				points = append(points, plotter.XY{X: float64(n), Y: v})
			}
		}
		if len(points) > 0 {
			lines = append(lines, spaced(subject), points)
		}
	}
	if len(c.counts()) < 2 || len(lines) == 0 {
		return nil
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return err
	}
	p.X.Max *= 1.5                          // the last label has room
	p.Y.Min, p.Y.Max = p.Y.Min/2, p.Y.Max*2 // no logarithm of 0 where all values are one
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, path)
}

// powers labels the powers of ten of an axis with values of a unit.
type powers string

// Ticks implements plot.Ticker.
func (u powers) Ticks(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strings.TrimSpace(withUnit(ticks[i].Value, string(u)))
		}
	}
	return ticks
}
