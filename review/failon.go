package review

import (
	"fmt"
	"slices"
	"strings"
)

// Condition is something on which a review can fail.
type Condition string

// The conditions.
const (
	// AllowedPrivate is a flow that is let out to an address which isn't public, but for targets of [hosts].
	AllowedPrivate Condition = "allowed-private"
	// IsChanged is a verdict that differs from the one recorded, or from the other policy's.
	IsChanged Condition = "changed"
	// Loosened and Tightened are changes from denied to let out, or from inspected to let out unseen, and back.
	Loosened  Condition = "loosened"
	Tightened Condition = "tightened"
	// Denied and IsUndecided are flows, names and requests with that verdict.
	Denied      Condition = "denied"
	IsUndecided Condition = "undecided"
	// Unreadable is a capture that is damaged, or lacks packets or verdicts.
	Unreadable Condition = "unreadable"
)

// conditions lists them all.
func conditions() []Condition {
	return []Condition{AllowedPrivate, IsChanged, Loosened, Tightened, Denied, IsUndecided, Unreadable}
}

// ParseConditions reads a comma-separated list.
func ParseConditions(list string) ([]Condition, error) {
	var all []Condition
	for text := range strings.SplitSeq(list, ",") {
		c := Condition(strings.TrimSpace(text))
		if c == "" {
			continue
		}
		if !slices.Contains(conditions(), c) {
			known := make([]string, 0, len(conditions()))
			for _, k := range conditions() {
				known = append(known, string(k))
			}
			return nil, fmt.Errorf("unknown condition %q: one of %s", c, strings.Join(known, ", "))
		}
		all = append(all, c)
	}
	return all, nil
}

// Count says how often a condition holds: flows, names and requests together.
func (r *Report) Count(c Condition) int {
	if c == Unreadable {
		n := len(r.Damage)
		if r.Lost > 0 {
			n++
		}
		if r.LostVerdicts > 0 { // a guest must not hide a request among many
			n++
		}
		return n
	}
	n := 0
	for f := range r.Flows() {
		if holds(c, f.Verdict, f.Against, f.Recorded) {
			n++
		}
	}
	for i := range r.Lookups {
		l := &r.Lookups[i]
		if holds(c, &l.Verdict, l.Against, l.Recorded) {
			n++
		}
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		if holds(c, &q.Verdict, q.Against, q.Recorded) {
			n++
		}
	}
	return n + r.beyond[c] + r.lateNames[c]
}

func holds(c Condition, v, against, recorded *Verdict) bool {
	if v == nil {
		return false
	}
	other := against
	if other == nil {
		other = recorded
	}
	switch c {
	case AllowedPrivate:
		return v.allowed() && v.Class != "" && !v.mapped
	case IsChanged:
		return changed(v, against, recorded)
	case Loosened:
		return changed(v, against, recorded) && v.freedom() > other.freedom()
	case Tightened:
		return changed(v, against, recorded) && v.freedom() < other.freedom()
	case Denied:
		return v.Action == "deny"
	case IsUndecided:
		return v.Action == Undecided
	case Unreadable:
	}
	return false
}
