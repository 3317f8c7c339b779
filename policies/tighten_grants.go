package policies

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// Under a floor, a policy takes from the host what the floor names and nothing
// else: here secrets, local images, files of roots and included files. Targets,
// resolvers and the proxy are in tighten.go; private ranges are judged by both.

// nameSecret refuses a secret whose source the floor doesn't name for all of its
// hosts, or which is used in another way than the floor has it used.
func (f *faults) nameSecret(floor *Policy, s Secret) {
	key := joinKey("secrets", s.Name)
	for _, h := range s.Hosts {
		var differs []string
		named := slices.ContainsFunc(floor.Secrets, func(o Secret) bool {
			if !sameSource(o.From, s.From) || !slices.ContainsFunc(o.Hosts, func(p SecretHost) bool { return p.port() == h.port() && p.Pattern.Covers(h.Pattern) }) {
				return false
			}
			differs = looser(o, s)
			return len(differs) == 0
		})
		switch {
		case named:
		case len(differs) > 0:
			f.addAt(s.Pos, key, "the operator's floor has another "+strings.Join(differs, ", ")+" for this source", "write what the floor has, or have it changed there")
		default:
			f.addAt(s.Pos, key, fmt.Sprintf("the operator's floor names no secret from %s for %s", s.From, h.Display()), "take the host or the secret out, or have it added to the floor's [secrets]")
		}
	}
}

// sameSource compares where values come from.
func sameSource(a, b Source) bool {
	return a.Kind == b.Kind && a.Value == b.Value && slices.Equal(a.Argv, b.Argv)
}

// looser lists the keys of s that steer the value in another way than those of
// the floor's secret o do.
func looser(o, s Secret) (keys []string) {
	for _, c := range []struct {
		key string
		ok  bool
	}{
		{"in", subset(s.In, o.In)},
		{"on_violation", s.OnViolation == o.OnViolation || s.OnViolation == Terminate},
		{"kind", s.Kind == o.Kind},
		{"services", subset(s.Services, o.Services)},
		{"regions", subset(s.Regions, o.Regions)},
		{"upgrades", subset(s.Upgrades, o.Upgrades)},
		{"mint", reflect.DeepEqual(s.Mint, o.Mint)},
		{"ttl", s.From.TTL == o.From.TTL},
		{"refresh_on_401", s.From.RefreshOn401 == o.From.RefreshOn401},
	} {
		if !c.ok {
			keys = append(keys, c.key)
		}
	}
	return keys
}

func subset[T comparable](a, b []T) bool {
	return !slices.ContainsFunc(a, func(v T) bool { return !slices.Contains(b, v) })
}

// nameRanges refuses ranges inside that the floor doesn't name for the same names. A rule may have a thousand of both: what the floor
// has for each is looked up once, and not for each pair.
func (f *faults) nameRanges(floor, p *Policy) {
	for _, r := range p.Egress.Allow {
		within := make([]ruleSet, len(r.Within)) // nil for what opens nothing inside
		inside := false
		for i, w := range r.Within {
			if OpensSpecial(w) {
				inside = true
				within[i] = rulesOf(floor, func(o *Rule) bool {
					return slices.ContainsFunc(o.Within, func(q netip.Prefix) bool { return InRange(q, w) })
				})
			}
		}
		if !inside {
			continue
		}
		for _, h := range r.Hosts {
			covers := rulesOf(floor, func(o *Rule) bool {
				return slices.ContainsFunc(o.Hosts, func(q hostname.Pattern) bool { return q.Covers(h) })
			})
			for i, w := range r.Within {
				if within[i] == nil || covers.meets(within[i]) {
					continue
				}
				if f.more > 0 { // the text of a fault takes longer than to find it
					f.more++
					continue
				}
				f.addAt(r.Pos, "", fmt.Sprintf("the operator's floor has no rule by which %s may have addresses in %s", h.Display(), w), fmt.Sprintf("take the range out, or have a rule with hosts = [%q] and within = [\"%s\"] added to the floor", h, w))
			}
		}
	}
}

// ruleSet has a bit for each allow rule of a policy.
type ruleSet []uint64

func rulesOf(p *Policy, in func(*Rule) bool) ruleSet {
	const bits = 64
	set := make(ruleSet, len(p.Egress.Allow)/bits+1)
	for i := range p.Egress.Allow {
		if in(&p.Egress.Allow[i]) {
			set[i/bits] |= 1 << (i % bits)
		}
	}
	return set
}

// meets reports whether a rule is in both.
func (s ruleSet) meets(other ruleSet) bool {
	for i, word := range s {
		if word&other[i] != 0 {
			return true
		}
	}
	return false
}

// InRange reports whether whoever opens outer for an address opens inner: it lies
// within outer, and is no metadata address, which has to be named itself.
func InRange(outer, inner netip.Prefix) bool {
	return outer == inner || !everything(outer) && !metadata(inner) && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// nameImage refuses an image from this machine's files that isn't the floor's.
func (f *faults) nameImage(floor, p *Policy) {
	if LocalImage(p.Sandbox.Image) && p.Sandbox.Image != floor.Sandbox.Image {
		f.add("sandbox.image", "the operator's floor doesn't name this image of the host's", "name an image of a registry, or have this one named in the floor's [sandbox]")
	}
}

// LocalImage reports whether an image reference names files of the host.
func LocalImage(ref string) bool {
	kind, _, ok := strings.Cut(ref, ":")
	return ok && slices.Contains([]string{"oci", "docker-archive", "dir"}, kind)
}

// nameFiles refuses roots and included files that the floor doesn't name.
func (f *faults) nameFiles(floor, p *Policy) {
	for _, ca := range p.TLS.ExtraCA {
		for _, h := range ca.Hosts {
			named := slices.ContainsFunc(floor.TLS.ExtraCA, func(o ExtraCA) bool {
				return o.File == ca.File && slices.ContainsFunc(o.Hosts, func(p hostname.Pattern) bool { return p.Covers(h) })
			})
			if !named {
				f.addAt(ca.Pos, "tls.extra_ca", fmt.Sprintf("the operator's floor doesn't name the roots of %q for %s", ca.File, h.Display()), "take the roots out, or have them added to the floor")
			}
		}
	}
	for _, file := range p.Outside {
		if !slices.Contains(floor.Outside, file) {
			f.add("include", fmt.Sprintf("the operator's floor doesn't include %q, which is outside of the policy's directory", file), "copy the file beside the policy, or have it included by the floor")
		}
	}
}
