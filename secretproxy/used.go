package secretproxy

import (
	"slices"
	"sync"
)

// usedSecrets is the secrets whose values were put into a request. Its body is still searched while the answer
// begins.
type usedSecrets struct {
	mu       sync.Mutex
	entries  []*entry
	violated bool
}

// firstViolation reports whether no violation was audited yet.
func (u *usedSecrets) firstViolation() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := !u.violated
	u.violated = true
	return first
}

// add reports whether e is new.
func (u *usedSecrets) add(e *entry) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.entries, e) {
		return false
	}
	u.entries = append(u.entries, e)
	return true
}

// list returns what was added so far; nil has nothing.
func (u *usedSecrets) list() []*entry {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.entries)
}
