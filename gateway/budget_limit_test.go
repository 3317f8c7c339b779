package gateway

import "testing"

// TestI11_BudgetsAreExact and no further.
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
		t.Error("a byte more was given")
	}
}
