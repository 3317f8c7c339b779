package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is what a program writes in two rounds.
const sample = `goos: linux
Unit B/s better=higher
BenchmarkNet/up/flows=1/of=msb 1 8e+08 B/s
BenchmarkNet/up/flows=1/of=msb 1 9e+08 B/s
BenchmarkNet/up/flows=1/of=copy_relay 1 2e+09 B/s
BenchmarkNet/up/flows=1/of=copy_relay 1 1.8e+09 B/s
BenchmarkNet/idle_flow/of=msb 1 14000 B
BenchmarkNet/lone/of=msb 1 0.002 sec/op
BenchmarkGrowth/rules/n=10/of=msb 1 1e-06 sec/op
BenchmarkGrowth/rules/n=1000/of=msb 1 2e-06 sec/op
`

func sampled(t *testing.T, text string) *results {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "net.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRatiosAreRoundByRound(t *testing.T) {
	t.Parallel()
	r := sampled(t, sample)
	got, ok := r.ratio(what{"Net/up/flows=1", "B/s"}, "copy_relay")
	if want := (spread{2, 0.4, 0.45, 0.5}); !ok || got != want {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
	if got, ok := r.ratio(what{"Net/lone", "sec/op"}, "copy_relay"); ok {
		t.Errorf("a ratio without a peer: %v", got)
	}
}

func TestFloors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ floor, missed string }{
		{"series='Net/up/flows=1'\nunit='B/s'\nof='copy_relay'\nleast=0.4", ""},
		{"series='Net/up/flows=1'\nunit='B/s'\nof='copy_relay'\nleast=0.5", "0.45, at least 0.5"},
		{"series='Net/idle_flow'\nunit='B'\nmost=20000", ""},
		{"series='Net/idle_flow'\nunit='B'\nmost=1000", "14000, at most 1000"},
		{"series='Growth/rules/n=1000'\nunit='sec/op'\nthan='Growth/rules/n=10'\nmost=3", ""},
		{"series='Growth/rules/n=1000'\nunit='sec/op'\nthan='Growth/rules/n=10'\nmost=1.5", "2, at most 1.5"},
		{"series='Net/none'\nunit='B/s'\nof='copy_relay'\nleast=1", "not measured"},
	} {
		floors, err := parseFloors("[[floor]]\n" + tt.floor)
		if err != nil {
			t.Fatal(err)
		}
		err = missed(check(floors, sampled(t, sample)), true)
		if (err == nil) != (tt.missed == "") || err != nil && !strings.Contains(err.Error(), tt.missed) {
			t.Errorf("%s: %v, want %q", tt.floor, err, tt.missed)
		}
	}
	for _, wrong := range []string{
		"series='a'\nunit='sec/op'\nmost=1", // a time is no floor
		"series='a'\nunit='B'",
		"series='a'\nunit='B'\nmost=1\nleast=1",
		"unit='B'\nmost=1",
		"series='a'\nunit='B'\nmost=1\nabove=2",
	} {
		if _, err := parseFloors("[[floor]]\n" + wrong); err == nil {
			t.Errorf("accepted:\n%s", wrong)
		}
	}
}

func TestFloorsFileIsValid(t *testing.T) {
	t.Parallel()
	floors, err := readFloors("../floors.toml")
	if err != nil || len(floors) == 0 {
		t.Error(len(floors), err)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	docs := t.TempDir()
	if err := os.Mkdir(filepath.Join(docs, "img"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := document{results: sampled(t, sample), machine: []string{"a machine"}, complete: true}
	if err := d.writeFiles(docs); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"- a machine\n",
		"| up/flows=1 | B/s | copy relay | 0.45 (0.4 to 0.5) |\n",
		"| msb | 1 (1 µsec) | 2 |\n",
		"![rules](img/bench-rules.svg)",
		"| Net/idle flow | msb | 14 kB | 14 kB to 14 kB | 1 |\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if plot, err := os.ReadFile(filepath.Join(docs, "img", "bench-rules.svg")); err != nil || !strings.Contains(string(plot), "<svg") {
		t.Errorf("the plot: %.60q, %v", plot, err)
	}
}

func TestResultsWithoutSubjectAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := readResults(dir); err == nil {
		t.Error("a directory without results was read")
	}
	if err := os.WriteFile(filepath.Join(dir, "net.txt"), []byte("BenchmarkNet/up 1 8 B/s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(dir); err == nil {
		t.Error("values without a system were read")
	}
}
