package main

import (
	"slices"
	"strings"
	"testing"
)

// rounds makes samples in which figure i is what value says for each round.
func rounds(n, i int, value func(round int) int64) []sample {
	all := make([]sample, n)
	for r := range all {
		all[r] = make(sample, len(figures))
		for j := range figures {
			all[r][j] = 100 * figures[j].unit
		}
		all[r][i] = value(r)
	}
	return all
}

// TestGrowthIsFound: what grows beyond its slack is named, one high round is not, and neither is what falls.
func TestGrowthIsFound(t *testing.T) {
	t.Parallel()
	for i, f := range figures {
		base := 100 * f.unit
		beyond := f.allowed(base) + 1
		for what, c := range map[string]struct {
			value func(int) int64
			want  bool
		}{
			"steady":           {func(int) int64 { return base }, false},
			"a step too far":   {func(r int) int64 { return base + beyond*int64(r/20) }, true},
			"within the slack": {func(r int) int64 { return base + (beyond-1)*int64(r/20) }, false},
			"one high round": {func(r int) int64 {
				if r == 29 {
					return base * 50
				}
				return base
			}, false},
			"falls":                {func(r int) int64 { return base - int64(r)*f.unit }, false},
			"a little every round": {func(r int) int64 { return base + int64(r)*beyond/19 }, true},
		} {
			got := grown(rounds(30, i, c.value))
			if slices.Contains(got, f.name) != c.want || len(got) > 1 {
				t.Errorf("%s, %s: grown are %v", f.name, what, got)
			}
		}
	}
}

// TestTheTableHasEveryFigure prints one.
func TestTheTableHasEveryFigure(t *testing.T) {
	t.Parallel()
	text := summary(rounds(minRounds, 0, func(int) int64 { return 7 }))
	for _, f := range figures {
		if !strings.Contains(text, f.name) {
			t.Errorf("no %s in\n%s", f.name, text)
		}
	}
	if lines := strings.Count(text, "\n"); lines != 4 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}
