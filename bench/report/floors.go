package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// floor is what msb must hold in a run: a ratio that depends little on the machine, or a size.
type floor struct {
	Series string `toml:"series"`
	Unit   string `toml:"unit"`
	// Of is the peer, or msb where Than is another series. Without both, the values themselves are bounded.
	Of    string  `toml:"of"`
	Than  string  `toml:"than"`
	Least float64 `toml:"least"`
	Most  float64 `toml:"most"`
	Why   string  `toml:"why"`

	got   spread
	known bool
}

// bytes is the only unit that may be bounded without a peer: what a time or a rate is depends on the machine.
const bytes = "B"

func readFloors(path string) ([]floor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseFloors(string(text))
}

func parseFloors(text string) ([]floor, error) {
	var file struct {
		Floor []floor `toml:"floor"`
	}
	meta, err := toml.Decode(text, &file)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown keys: %v", unknown)
	}
	for i, f := range file.Floor {
		switch {
		case f.Series == "" || f.Unit == "":
			return nil, fmt.Errorf("floor %d: it needs series and unit", i+1)
		case (f.Least == 0) == (f.Most == 0):
			return nil, fmt.Errorf("floor %d, %s: it needs least or most", i+1, f.Series)
		case f.Of == "" && f.Than == "" && f.Unit != bytes:
			return nil, fmt.Errorf("floor %d, %s: only sizes (unit %q) are bounded without a peer", i+1, f.Series, bytes)
		}
	}
	return file.Floor, nil
}

// check fills in what was got.
func check(floors []floor, r *results) []floor {
	for i := range floors {
		f := &floors[i]
		w := what{f.Series, f.Unit}
		switch {
		case f.Of == "" && f.Than == "":
			f.got = spreadOf(r.values[w][ours])
			f.known = f.got.n > 0
		case f.Than != "":
			f.got, f.known = ratioOf(r.values[w][ours], r.values[what{f.Than, f.Unit}][ours])
		default:
			f.got, f.known = r.ratio(w, f.Of)
		}
	}
	return floors
}

// held tells whether the median is within the bound.
func (f *floor) held() bool {
	if f.Least != 0 {
		return f.got.median >= f.Least
	}
	return f.got.median <= f.Most
}

// bound is how the bound reads.
func (f *floor) bound() string {
	if f.Least != 0 {
		return "at least " + short(f.Least)
	}
	return "at most " + short(f.Most)
}

// against is what the values are compared with.
func (f *floor) against() string {
	switch {
	case f.Than != "":
		return "itself, " + f.Than
	case f.Of != "":
		return spaced(f.Of)
	}
	return "bytes"
}

// missed is an error that names the floors which don't hold; where everything was measured, also those without values.
func missed(floors []floor, all bool) error {
	var lines []string
	for _, f := range floors {
		switch {
		case f.known && !f.held():
			lines = append(lines, fmt.Sprintf("%s against %s: %s, %s", f.Series, f.against(), short(f.got.median), f.bound()))
		case !f.known && all:
			lines = append(lines, fmt.Sprintf("%s against %s: not measured", f.Series, f.against()))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("floors of bench/floors.toml that don't hold:\n  %s", strings.Join(lines, "\n  "))
}

// short writes a number with three digits.
func short(v float64) string {
	if a := math.Abs(v); a >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
