package egress

import (
	"fmt"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// CheckNames refuses allow rules for names that are never resolved, whatever the
// rules say: SpecialName keeps them inside. The error is a policies.ErrorList.
func CheckNames(p *policies.Policy) error {
	var list policies.ErrorList
	for _, r := range p.Egress.Allow {
		for _, h := range r.Hosts {
			if neverResolved(h, p) {
				list = append(list, policies.Error{
					File: r.Pos.File, Line: r.Pos.Line, Col: r.Pos.Col,
					Message: fmt.Sprintf("rule %q: %q can never match: it means nothing public and is never resolved", r.Name, h.Display()),
					Remedy:  "take it out, or map it in [hosts] to the address it stands for",
				})
			}
		}
	}
	if list == nil {
		return nil
	}
	return list
}

// neverResolved tries the name itself, or two below a wildcard: one label is an
// octet or a digit of a reverse zone as well, and not every zone has both.
func neverResolved(h hostname.Pattern, p *policies.Policy) bool {
	for _, m := range p.Hosts {
		if h.Match(m.Name) {
			return false
		}
	}
	for _, label := range []string{"1", "2"} {
		n, err := hostname.Parse(strings.Replace(h.String(), "*", label, 1))
		if _, special := SpecialName(n); err != nil || !special {
			return false
		}
	}
	return true
}
