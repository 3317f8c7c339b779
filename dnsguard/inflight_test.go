package dnsguard

import (
	"testing"
	"testing/synctest"
)

// TestI11_LookupsAtOnceAreBounded: questions beyond the bound are refused, and those that are asked already
// cost nothing.
func TestI11_LookupsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	const most = 3
	f := newInflight(most)
	answer := make(chan struct{})
	work := func() *reply {
		<-answer
		return &reply{}
	}
	got := make(chan *reply, 2*most)
	for i := range most {
		key := string(rune('a' + i))
		for range 2 {
			if !f.join(key, work, func(r *reply) { got <- r }) {
				t.Fatalf("lookup %d of %d was refused", i+1, most)
			}
		}
	}
	if f.join("another", work, func(*reply) { t.Error("it was answered") }) {
		t.Errorf("%d lookups at once, the bound is %d", most+1, most)
	}
	close(answer)
	for range 2 * most {
		<-got
	}
	f.close()
	if f.join("late", work, func(*reply) { t.Error("it was answered") }) {
		t.Error("a lookup began behind the end")
	}
}

// TestI11_StalledReadersHoldUpNobody: each of those that wait for one lookup gets its answer.
func TestI11_StalledReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(1)
		answer, taken := make(chan struct{}), make(chan struct{})
		work := func() *reply {
			<-answer
			return &reply{}
		}
		answered := make([]bool, 4)
		for i := range answered {
			f.join("a", work, func(*reply) {
				if i == 1 {
					<-taken // a guest that doesn't read
				}
				answered[i] = true
			})
			synctest.Wait()
		}
		close(answer)
		synctest.Wait()
		for i, ok := range answered {
			if ok != (i != 1) {
				t.Errorf("question %d: answered %v", i, ok)
			}
		}
		close(taken)
		f.close()
	})
}
