package mask

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestI11_AddedNeedlesAreCompiledOnce: the work for a sandbox that gets one value after another grows with their
// number; with each set compiled from all of them it would grow with its square. Every set finds all of its needles.
func TestI11_AddedNeedlesAreCompiledOnce(t *testing.T) {
	t.Parallel()
	needle := func(i int) []byte { return fmt.Appendf(nil, "real-access-token-%04d-%04d", i, i*i%9973) }
	const few, times = 25, 4
	work := map[bool][2]int{}
	for _, shared := range []bool{true, false} {
		var counts [2]int
		for round, n := range []int{few, few * times} {
			set, all := Compile(nil, Options{}), [][]byte{}
			counted := 0
			for i := range n {
				all = append(all, needle(i))
				before := set.plain
				if shared {
					set = set.Add(all[i:])
				} else {
					set = Compile(all, Options{})
				}
				for _, m := range set.plain.matchers {
					if len(before.matchers) == 0 || !slices.Contains(before.matchers, m) {
						counted += len(m.patterns)
					}
				}
				if shared && len(set.plain.matchers) > 3 {
					t.Fatalf("%d needles are sought by %d matchers", i+1, len(set.plain.matchers))
				}
			}
			counts[round] = counted
			text := strings.Repeat("x", 100) + string(needle(0)) + " " + string(needle(n/2)) + " " + string(needle(n-1))
			out, hits, err := set.ReplaceBytes([]byte(text), func(h Hit) ([]byte, error) { return fmt.Appendf(nil, "<%d>", h.Needle), nil })
			if want := fmt.Sprintf("<0> <%d> <%d>", n/2, n-1); err != nil || hits != 3 || !strings.HasSuffix(string(out), want) {
				t.Errorf("%d needles, shared %v: %q, %v", n, shared, out, err)
			}
		}
		work[shared] = counts
	}
	growth := func(c [2]int) int { return c[1] / c[0] }
	t.Log(work)
	if got, without := growth(work[true]), growth(work[false]); got >= 2*times || without < times*times-times/2 {
		t.Errorf("for %d times as many needles, %d times as many patterns are sorted, without sharing %d", times, got, without)
	}
}
