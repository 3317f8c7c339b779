package policies

import (
	"slices"

	"github.com/msb-project/msb/hostname"
)

// Inherit returns p with the secrets of the floor that are of use under it: each
// with those of its hosts that p allows over https and inspects. A secret of p's
// own of the same name stays as it is. Neither argument is changed.
//
// With a secret of the floor, p counts as read from the floor's file: the approval
// of that file is what covers the secret's source, and a command's script is
// compared with what was approved.
func Inherit(floor, p *Policy) *Policy {
	out := *p
	free := mappedFreely(p)
	for _, s := range floor.Secrets {
		own := func(o Secret) bool { return o.Name == s.Name }
		s.Hosts = slices.DeleteFunc(slices.Clone(s.Hosts), func(h SecretHost) bool { return !useful(p, free, h) })
		if len(s.Hosts) > 0 && !slices.ContainsFunc(p.Secrets, own) {
			out.Secrets = append(slices.Clip(out.Secrets), s)
			out.File, out.Path, out.Included = floor.File, floor.Path, floor.Included
		}
	}
	return &out
}

// useful reports whether p lets a value reach some name of h.
func useful(p *Policy, free []hostname.Name, h SecretHost) bool {
	reach, _ := secretReach(p, free, h)
	_, shut := shutBy(p, h)
	return reach && !shut && p.TLS.Inspect != InspectNone && !slices.ContainsFunc(p.TLS.Bypass, h.Pattern.Overlaps)
}
