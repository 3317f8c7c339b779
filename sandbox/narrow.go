package sandbox

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/policies"
)

// The bounds on what Narrow reads.
const (
	MaxNarrowPolicy = 64 << 10 // bytes
	MaxNarrowAllow  = 256      // rules of allow
	MaxNarrowRule   = 1 << 10  // bytes of one of them
)

// NarrowError says what is wrong with what was asked for.
type NarrowError struct {
	// Beyond means that it asks for more than there is above it.
	Beyond bool
	Err    error
}

// Error implements error.
func (e *NarrowError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *NarrowError) Unwrap() error { return e.Err }

func narrowFault(format string, args ...any) error {
	return &NarrowError{Err: fmt.Errorf(format, args...)}
}

// takesNothing refuses what such a policy would take of the host.
const takesNothing = "a client's policy has no secrets, no extra_ca, no [sandbox] and no [agent]; the operator's floor names secrets, and a sandbox gets those whose hosts it may reach"

// secretsTable is the key of secrets in a policy, however it is written.
var secretsTable = lazyregexp.New(`(?m)^\s*\[?\s*["']?secrets["']?\s*[].=]`)

// Narrow is what somebody asks for who is not trusted, such as an agent or a program in a sandbox: the text of a policy
// (nil for one that allows nothing) and the rules of allow beside it, under a policy that it can't go beyond, with the
// secrets of that one that are of use under it. It takes nothing from the host.
func (t Trust) Narrow(above *policies.Policy, text *string, allow []string) (*policies.Policy, error) {
	p := policies.Default()
	if text != nil {
		if strings.TrimSpace(*text) == "" {
			return nil, narrowFault("policy is empty; leave it out for the operator's own, or give allow: [] for no network")
		}
		if len(*text) > MaxNarrowPolicy {
			return nil, narrowFault("a policy of %d bytes; give at most %d", len(*text), MaxNarrowPolicy)
		}
		if secretsTable.MatchString(*text) { // before it is held against rules that it can't have
			return nil, narrowFault(takesNothing)
		}
		var err error
		if p, err = policies.Parse("policy", []byte(*text), nil); err != nil {
			return nil, narrowFault("%w", err)
		}
	}
	if len(allow) > MaxNarrowAllow {
		return nil, narrowFault("%d allow rules; give at most %d", len(allow), MaxNarrowAllow)
	}
	if slices.ContainsFunc(allow, func(rule string) bool { return len(rule) > MaxNarrowRule }) {
		return nil, narrowFault("allow: a rule of more than %d bytes", MaxNarrowRule)
	}
	own := p.Hosts
	p.Hosts = slices.Concat(own, above.Hosts)
	if err := policies.AddFlags(p, policies.Flags{Allow: allow}); err != nil {
		return nil, narrowFault("allow: %s", strings.ReplaceAll(err.Error(), "--allow ", ""))
	}
	p.Hosts = own
	// What names a file is refused before anything looks at the file: whether it is there, and where a link leads, would
	// be told by the error.
	if len(p.Secrets) > 0 || len(p.TLS.ExtraCA) > 0 || p.Agent != nil || !reflect.DeepEqual(p.Sandbox, policies.Default().Sandbox) {
		return nil, narrowFault(takesNothing)
	}
	set, err := t.Grants(p)
	if err != nil {
		return nil, err
	}
	if len(set) > 0 {
		return nil, narrowFault("a client's policy takes nothing from the host, but this takes %s; only the operator's floor may", set.Lines()[0])
	}
	p.Hosts = slices.Concat(own, mappingsFor(p, above))
	if _, err := policies.Tighten(above, p); err != nil {
		return nil, &NarrowError{true, err}
	}
	return policies.Inherit(above, p), nil
}

// mappingsFor are the [hosts] above of names that p allows, for p to have too: those above count only for names that p maps
// in the same way. Any other would be allowed by its mapping alone.
func mappingsFor(p, above *policies.Policy) []policies.HostMapping {
	var all []policies.HostMapping
	for _, m := range above.Hosts {
		maps := func(h policies.HostMapping) bool { return h.Name == m.Name }
		names := func(r policies.Rule) bool {
			return slices.ContainsFunc(r.Hosts, func(h hostname.Pattern) bool { return h.Match(m.Name) })
		}
		if !slices.ContainsFunc(p.Hosts, maps) && slices.ContainsFunc(p.Egress.Allow, names) {
			all = append(all, m)
		}
	}
	return all
}
