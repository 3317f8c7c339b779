package gateway

import (
	"errors"
	"testing"
)

// TestI11_BudgetsEndAtTheirLimit takes up to the last byte.
func TestI11_BudgetsEndAtTheirLimit(t *testing.T) {
	t.Parallel()
	var b budget
	if b.take(1<<40) != nil || b.spent() {
		t.Error("a budget without a limit is spent")
	}
	b = budget{}
	b.set(packetCost + 10)
	if err := b.takePacket(9); err != nil || b.spent() {
		t.Errorf("a byte is left: %v, spent %v", err, b.spent())
	}
	if err := b.take(1); err != nil || !b.spent() {
		t.Errorf("the last byte: %v, spent %v", err, b.spent())
	}
	if err := b.take(1); !errors.Is(err, errBudget) {
		t.Errorf("a byte more: %v", err)
	}
	b.set(packetCost + 11) // what was refused was counted: a larger limit gives nothing back
	if !b.spent() {
		t.Error("a reload gave bytes back")
	}
}
