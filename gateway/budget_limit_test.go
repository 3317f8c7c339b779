package gateway

import "testing"

// TestI11_BudgetsAreExact gives the last byte of a budget, and none after it.
func TestI11_BudgetsAreExact(t *testing.T) {
	t.Parallel()
	var b budget
	b.limit.Store(100)
	if err := b.take(99); err != nil {
		t.Error(err)
	}
	if err := b.take(1); err != nil {
		t.Errorf("%v; it fits exactly", err)
	}
	if b.take(1) == nil {
		t.Error("a byte above the limit was given")
	}
}
