package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// document is what is written.
type document struct {
	results  *results
	machine  []string
	floors   []floor
	complete bool // every program ran
	short    bool // of a quick run
}

// method stands above the figures.
const method = `# Benchmarks

Written by ` + "`make bench`" + `; every figure on this page is of one run on one machine. To repeat it, as root on Linux:

` + "```console" + `
$ make bench          # everything; writes this page
$ make bench-quick    # the same programs, short; prints a table and writes nothing here
$ benchstat -col /of bin/bench/net.txt
` + "```" + `

## Method

- Every program under ` + "`bench/`" + ` measures msb and its peers in rounds, one after the other within a round, so that what else the machine does meets them alike. A ratio is taken in each round; the table has the median of the rounds and their range.
- Read the ratios, not the seconds: the absolute values at the end of the page are of this machine.
- **msb/peer** above 1 is good for rates (units that end in /s), below 1 for everything else; better ones are bold.
- The servers are on loopback and the guest of the network figures is a network namespace with a TAP: no loss, no delay, no network. What each program leaves out stands in its ` + "`doc.go`" + `.
- ` + "`make bench`" + ` fails where a floor of ` + "`bench/floors.toml`" + ` does not hold. Floors are of ratios and sizes, never of times.
`

// markdown writes the page; with links to plots where they are drawn.
func (d *document) markdown(plots bool) string {
	var b strings.Builder
	b.WriteString(method)
	if d.short {
		b.WriteString("\n**These figures are of a short run, with few rounds** (`make bench-quick`): they show that everything measures, and magnitudes. `make bench` replaces them.\n")
	}
	if !d.complete {
		b.WriteString("\nNot every program ran: what is missing was not measured.\n")
	}
	b.WriteString("\n## Machine and versions\n\n")
	for _, line := range d.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n## Ratios\n")
	for _, group := range d.groups() {
		d.ratios(&b, group)
	}
	b.WriteString("\n## Growth\n\nThe median of each, as a multiple of the first column's.\n\n")
	for _, g := range d.results.growth() {
		g.table(&b)
		if plots && len(g.counts()) > 1 {
			fmt.Fprintf(&b, "![%s](img/%s)\n\n", g.title, g.file())
		}
	}
	b.WriteString("## Floors\n\n| figure | against | bound | got | held |\n|---|---|---|---|---|\n")
	for _, f := range d.floors {
		got, held := "not measured", "–"
		if f.known {
			got, held = short(f.got.median), "**no**"
			if f.held() {
				held = "yes"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", spaced(f.Series), spaced(f.against()), f.bound(), got, held)
	}
	d.absolute(&b)
	return b.String()
}

// groups are the first parts of the names, without growth, in order.
func (d *document) groups() (all []string) {
	for _, w := range d.results.order {
		if g, _, _ := strings.Cut(w.name, "/"); g != growthGroup && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// ratios writes one group's table.
func (d *document) ratios(b *strings.Builder, group string) {
	var lines []string
	for _, w := range d.results.order {
		if !strings.HasPrefix(w.name, group+"/") {
			continue
		}
		for _, peer := range d.results.subjects[w] {
			s, ok := d.results.ratio(w, peer)
			if !ok || peer == ours {
				continue
			}
			lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |", spaced(strings.TrimPrefix(w.name, group+"/")), w.unit, spaced(peer), bold(s, higher(w.unit))))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n### %s\n\n| figure | unit | peer | msb/peer |\n|---|---|---|---|\n%s\n", group, strings.Join(lines, "\n"))
	}
}

// bold is a ratio with its range, bold where msb is better.
func bold(s spread, more bool) string {
	text := short(s.median)
	if more && s.median > 1 || !more && s.median < 1 {
		text = "**" + text + "**"
	}
	if s.n > 1 {
		text += fmt.Sprintf(" (%s to %s)", short(s.low), short(s.top))
	}
	return text
}

// absolute writes the values themselves.
func (d *document) absolute(b *strings.Builder) {
	b.WriteString("\n## Footnote: absolute values\n\nMedians of this machine, with range and number of values.\n\n<details><summary>all figures</summary>\n\n| figure | of | median | range | n |\n|---|---|---|---|---|\n")
	for _, w := range d.results.order {
		for _, subject := range d.results.subjects[w] {
			s := spreadOf(d.results.values[w][subject])
			fmt.Fprintf(b, "| %s | %s | %s | %s to %s | %d |\n", spaced(w.name), spaced(subject), withUnit(s.median, w.unit), withUnit(s.low, w.unit), withUnit(s.top, w.unit), s.n)
		}
	}
	b.WriteString("\n</details>\n")
}

// withUnit writes a value with a prefix that suits it.
func withUnit(v float64, unit string) string {
	if strings.HasPrefix(unit, "failures") || v == 0 {
		return fmt.Sprintf("%g %s", v, unit)
	}
	prefixes := []string{"n", "µ", "m", "", "k", "M", "G"}
	i := min(max(3+int(math.Floor(math.Log10(v)/3)), 0), len(prefixes)-1)
	return fmt.Sprintf("%.3g %s%s", v/math.Pow(1000, float64(i-3)), prefixes[i], strings.TrimSuffix(unit, "/op"))
}

// spaced undoes what a name in the benchmark format may not hold.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// writeFiles writes the page and its plots.
func (d *document) writeFiles(docs string) error {
	for _, g := range d.results.growth() {
		if err := g.draw(filepath.Join(docs, "img", g.file())); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte(d.markdown(true)), 0o644)
}
