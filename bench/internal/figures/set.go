package figures

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Units. Every unit that ends in "/s" is better when higher, every other when lower.
const (
	Rate    = "B/s"
	Seconds = "sec/op"
	Bytes   = "B"
	Ops     = "ops/s"
)

// Unit is the unit of a series whose name ends with that of its values, ", MiB/s", ", MiB", ", files/s", ", /s" or ", ms",
// and what to multiply them with.
func Unit(series string) (unit string, scale float64) {
	switch {
	case strings.HasSuffix(series, " MiB/s"):
		return Rate, 1 << 20
	case strings.HasSuffix(series, " MiB"):
		return Bytes, 1 << 20
	case strings.HasSuffix(series, "/s"):
		return Ops, 1
	}
	return Seconds, 1e-3
}

// OfMsb is the subject that msb's own values are of.
const OfMsb = "msb"

// Set holds the values of series in the order in which the series came. Its zero value is empty.
type Set struct {
	order  []series
	values map[series][]float64
}

type series struct{ name, unit string }

// spaces may not be in a name of the benchmark format.
var spaces = strings.NewReplacer(" ", "_", "\t", "_", ",", "")

// name is a series' name: "what/of=subject".
func name(what, subject string) string { return spaces.Replace(what + "/of=" + subject) }

// Add adds a value of one round.
func (s *Set) Add(what, subject, unit string, v float64) {
	k := series{name(what, subject), unit}
	if s.values == nil {
		s.values = map[series][]float64{}
	}
	if s.values[k] == nil {
		s.order = append(s.order, k)
	}
	s.values[k] = append(s.values[k], v)
}

// Values are those of one series.
func (s *Set) Values(what, subject, unit string) []float64 {
	return s.values[series{name(what, subject), unit}]
}

// All are the series by their names, what/of=subject, in the order in which they came.
func (s *Set) All() iter.Seq2[string, []float64] {
	return func(yield func(string, []float64) bool) {
		for _, k := range s.order {
			if !yield(k.name+" "+k.unit, s.values[k]) {
				return
			}
		}
	}
}

// write writes every value as a line of its own: benchstat takes the median of lines with one name.
func (s *Set) write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "goos: %s\ngoarch: %s\n", runtime.GOOS, runtime.GOARCH)
	said := map[string]bool{}
	for _, k := range s.order {
		if strings.HasSuffix(k.unit, "/s") && !said[k.unit] {
			fmt.Fprintf(b, "Unit %s better=higher\n", k.unit)
			said[k.unit] = true
		}
		for _, v := range s.values[k] {
			fmt.Fprintf(b, "Benchmark%s 1 %.6g %s\n", k.name, v, k.unit)
		}
	}
	return b.Flush()
}

// WriteFile writes the values to a new file; path "" is none.
func (s *Set) WriteFile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(s.write(f), f.Close())
}

// Spread is what is said of a series.
type Spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Of is the spread of values; all zero for none.
func Of(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{N: len(v), Min: v[0], Median: middle(v), Max: v[len(v)-1]}
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Median is that of values, 0 for none.
func Median(values []float64) float64 { return Of(values).Median }

// MedianTime is that of durations, 0 for none.
func MedianTime(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

// Quantile is the value below which the part q of them lies; 0 for none.
func Quantile(values []float64, q float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return v[int(q*float64(len(v)-1)+0.5)]
}

// Text is the median, and the range where there are several values, both in the format of one.
func Text(format string, values []float64) string {
	s := Of(values)
	out := fmt.Sprintf(format, s.Median)
	if s.N > 1 {
		out += fmt.Sprintf(" ("+format+"-"+format+")", s.Min, s.Max)
	}
	return out
}

// Ratios are those of a and b, round by round.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
