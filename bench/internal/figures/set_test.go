package figures

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []float64
		want   Spread
		p75    float64
	}{
		{nil, Spread{}, 0},
		{[]float64{3}, Spread{1, 3, 3, 3}, 3},
		{[]float64{3, 1}, Spread{2, 1, 2, 3}, 3},
		{[]float64{5, 1, 3, 2, 4}, Spread{5, 1, 3, 5}, 4},
	} {
		if got := Of(tt.values); got != tt.want {
			t.Errorf("Of(%v) = %v, want %v", tt.values, got, tt.want)
		}
		if got := Quantile(tt.values, 0.75); got != tt.p75 {
			t.Errorf("Quantile(%v, 0.75) = %v, want %v", tt.values, got, tt.p75)
		}
	}
	if got := Text("%.1f", []float64{2, 1, 4}); got != "2.0 (1.0-4.0)" {
		t.Errorf("Text: %q", got)
	}
	if got := Ratios([]float64{2, 9}, []float64{4, 3}); !slices.Equal(got, []float64{0.5, 3}) {
		t.Errorf("Ratios: %v", got)
	}
}

func TestUnitOfASeries(t *testing.T) {
	t.Parallel()
	for series, want := range map[string]struct {
		unit  string
		scale float64
	}{
		"read in order, MiB/s":     {Rate, 1 << 20},
		"most memory, MiB":         {Bytes, 1 << 20},
		"make, files/s":            {Ops, 1},
		"metadata operations, /s":  {Ops, 1},
		"git status of 1 file, ms": {Seconds, 1e-3},
	} {
		if unit, scale := Unit(series); unit != want.unit || scale != want.scale {
			t.Errorf("%s: %s, %g; want %s, %g", series, unit, scale, want.unit, want.scale)
		}
	}
}

func TestSetIsInBenchmarkFormat(t *testing.T) {
	t.Parallel()
	var s Set
	s.Add("Net/up 1", OfMsb, Rate, 8.8e8)
	s.Add("Net/up 1", "copy relay", Rate, 2e9)
	s.Add("Net/up 1", OfMsb, Rate, 9e8)
	s.Add("Net/connect", OfMsb, Seconds, 0.00025)
	var b strings.Builder
	if err := s.write(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "goarch: ")
	_, got, _ = strings.Cut(got, "\n")
	const want = `Unit B/s better=higher
BenchmarkNet/up_1/of=msb 1 8.8e+08 B/s
BenchmarkNet/up_1/of=msb 1 9e+08 B/s
BenchmarkNet/up_1/of=copy_relay 1 2e+09 B/s
BenchmarkNet/connect/of=msb 1 0.00025 sec/op
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := s.Values("Net/up 1", OfMsb, Rate); !slices.Equal(got, []float64{8.8e8, 9e8}) {
		t.Errorf("values: %v", got)
	}
	var names []string
	for name, values := range s.All() {
		names = append(names, fmt.Sprint(name, len(values)))
	}
	if !slices.Equal(names, []string{"Net/up_1/of=msb B/s2", "Net/up_1/of=copy_relay B/s1", "Net/connect/of=msb sec/op1"}) {
		t.Errorf("all: %q", names)
	}
}
