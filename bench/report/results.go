package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// ours is the subject that msb's own values are of.
const ours = "msb"

// what is measured: a name without the part of=, and a unit.
type what struct{ name, unit string }

// results are all values, in the order in which they came.
type results struct {
	order    []what
	subjects map[what][]string
	values   map[what]map[string][]float64
}

// readResults reads every file of a directory.
func readResults(dir string) (*results, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no results: run make bench", dir)
	}
	r := &results{subjects: map[what][]string{}, values: map[what]map[string][]float64{}}
	for _, p := range programs {
		if i := slices.Index(files, filepath.Join(dir, p.name+".txt")); i >= 0 {
			err = errors.Join(err, r.read(files[i]))
		}
	}
	return r, err
}

func (r *results) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in := benchfmt.NewReader(f, path)
	for in.Scan() {
		switch line := in.Result().(type) {
		case *benchfmt.SyntaxError:
			return line
		case *benchfmt.Result:
			name, subject, found := strings.Cut(string(line.Name), "/of=")
			if !found {
				return fmt.Errorf("%s: %s has no /of=SYSTEM", path, line.Name)
			}
			for _, v := range line.Values {
				r.add(what{name, v.Unit}, subject, v.Value)
			}
		}
	}
	return in.Err()
}

func (r *results) add(w what, subject string, v float64) {
	if r.values[w] == nil {
		r.order = append(r.order, w)
		r.values[w] = map[string][]float64{}
	}
	if !slices.Contains(r.subjects[w], subject) {
		r.subjects[w] = append(r.subjects[w], subject)
	}
	r.values[w][subject] = append(r.values[w][subject], v)
}

// spread is the median of values and their range.
type spread struct {
	n                int
	low, median, top float64
}

func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n == 0 {
		return spread{}
	}
	return spread{n, v[0], (v[(n-1)/2] + v[n/2]) / 2, v[n-1]}
}

// ratio is that of msb's values and a peer's: round by round where both have as many, else that of the medians.
func (r *results) ratio(w what, peer string) (spread, bool) {
	return ratioOf(r.values[w][ours], r.values[w][peer])
}

func ratioOf(a, b []float64) (spread, bool) {
	if len(a) == 0 || len(b) == 0 || slices.Contains(b, 0) {
		return spread{}, false
	}
	if len(a) != len(b) {
		of := spreadOf(a).median / spreadOf(b).median
		return spread{1, of, of, of}, true
	}
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return spreadOf(all), true
}

// higher tells whether more of a unit is better.
func higher(unit string) bool { return strings.HasSuffix(unit, "/s") }
