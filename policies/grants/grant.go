package grants

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Kind is what sort of thing a policy takes.
type Kind string

// The kinds.
const (
	// Secret is the source of a secret, what is done with it and one place of one
	// host that gets it.
	Secret Kind = "secret"
	// Image is an image made of files of this machine.
	Image Kind = "image"
	// Directory is a directory that agents see.
	Directory Kind = "directory"
	// Include is a policy file outside of the policy's directory.
	Include Kind = "include"
	// Private is a range of special-purpose addresses that a rule opens: to
	// everybody, or to the names of a rule.
	Private Kind = "private range"
	// Client is a range of addresses from which published ports may be reached.
	Client Kind = "clients"
	// SSH is a key of [ssh]: a way back to the machine of an SSH client.
	SSH Kind = "ssh"
	// Target is a line of [hosts].
	Target Kind = "host"
	// Resolver is a DNS server of the policy's choice.
	Resolver Kind = "resolver"
	// Proxy is [tls] via.
	Proxy Kind = "proxy"
	// Roots are certificates of [tls] extra_ca and a name that they vouch for.
	Roots Kind = "roots"
	// Registry is what an image of a registry may need: the user's credentials,
	// or a registry on a private network. Without it the image is asked for
	// without a name, and on public addresses only.
	Registry Kind = "registry"
)

// Grant is one thing that a policy takes from the host. Two are the same if they
// are equal.
type Grant struct {
	Kind Kind `json:"kind"`
	// What is the thing, quoted so that it can be shown.
	What string `json:"what"`
	// To is who gets it, if anybody does.
	To string `json:"to,omitempty"`
}

// String is a line for people, printable.
func (g Grant) String() string {
	if g.To == "" {
		return string(g.Kind) + " " + g.What
	}
	return string(g.Kind) + " " + g.What + " to " + g.To
}

// Optional reports whether the policy works without g for as long as nothing
// needs it: it is approved by name only, never asked for beforehand.
func (g Grant) Optional() bool { return g.Kind == Registry }

// Set is a set of grants, sorted.
type Set []Grant

// add puts g into the set.
func (s *Set) add(g Grant) {
	at, found := slices.BinarySearchFunc(*s, g, compare)
	if !found {
		*s = slices.Insert(*s, at, g)
	}
}

func compare(a, b Grant) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What), cmp.Compare(a.To, b.To))
}

// Has reports whether s covers g: it holds g itself, or a range around it: for
// a private one, one that is open to all whom g lets in.
func (s Set) Has(g Grant) bool {
	if slices.Contains(s, g) {
		return true
	}
	if g.Kind != Private && g.Kind != Client {
		return false
	}
	inner, err := netip.ParsePrefix(g.What)
	return err == nil && slices.ContainsFunc(s, func(o Grant) bool {
		outer, err := netip.ParsePrefix(o.What)
		if err != nil || o.Kind != g.Kind {
			return false
		}
		if g.Kind == Client {
			return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
		}
		return policies.InRange(outer, inner) && o.reaches(g)
	})
}

// reaches reports whether a range for g.To is one for all whom o names.
func (o Grant) reaches(g Grant) bool {
	if o.To == "" || o.To == g.To {
		return true
	}
	outer, err := hostname.ParsePattern(o.To)
	inner, err2 := hostname.ParsePattern(g.To)
	return err == nil && err2 == nil && outer.Covers(inner)
}

// Beyond returns what s asks for that approved doesn't cover. Optional grants are
// not asked for.
func (s Set) Beyond(approved Set) Set {
	var out Set
	for _, g := range s {
		if !g.Optional() && !approved.Has(g) {
			out = append(out, g)
		}
	}
	return out
}

// Lines returns the set for people: those who get the same thing are on one
// line.
func (s Set) Lines() []string {
	var lines []string
	for i := 0; i < len(s); {
		line := s[i].String()
		first := s[i]
		for i++; i < len(s) && first.To != "" && s[i].Kind == first.Kind && s[i].What == first.What; i++ {
			line += ", " + s[i].To
		}
		lines = append(lines, line)
	}
	return lines
}

// String is Lines, a line each.
func (s Set) String() string { return strings.Join(s.Lines(), "\n") }
