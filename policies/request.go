package policies

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// maxRequestMethods bounds the methods of one request.
const maxRequestMethods = 16

// ErrMayNotRequest is wrapped by errors about access that a floor lets nobody ask for.
var ErrMayNotRequest = errors.New("the operator's policy lets nobody ask for this")

// Requestable reports whether an agent may ask a person for https to that name and port. The zero value, and nil, allow
// every name at port 443.
func (a *Agent) Requestable(name hostname.Name, port uint16) bool {
	if a == nil || a.MayRequest == nil {
		return port == portHTTPS
	}
	return slices.ContainsFunc(a.MayRequest, func(h SecretHost) bool { return h.Match(name, port) })
}

// RequestRule is the rule that a request becomes once a person has approved it: https to one name, which host has to be
// exactly, at one port, 0 for 443. Without methods it is of all of them. ErrMayNotRequest if it is beyond what the
// [agent] of the floor lets agents ask for; nil is no floor.
func RequestRule(floor *Policy, host string, port uint16, methods []string) (Rule, error) {
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return Rule{}, fmt.Errorf("host %q is an address; ask for a name", host)
	}
	name, err := hostname.Parse(host)
	if err != nil {
		return Rule{}, fmt.Errorf("host: %w", err)
	}
	if port == 0 {
		port = portHTTPS
	}
	if floor == nil {
		floor = Default()
	}
	for f := floor; f != nil; f = f.Floor {
		if slices.ContainsFunc(f.Hosts, func(m HostMapping) bool { return m.Name == name }) {
			return Rule{}, fmt.Errorf("%w: [hosts] maps %s to a target of its own", ErrMayNotRequest, name)
		}
		if !f.Agent.Requestable(name, port) {
			return Rule{}, fmt.Errorf("%w: may_request of its [agent] does not hold %s", ErrMayNotRequest, SecretHost{hostname.Exactly(name), port})
		}
	}
	if len(methods) > maxRequestMethods {
		return Rule{}, fmt.Errorf("%d methods; ask for at most %d, or leave them out for all", len(methods), maxRequestMethods)
	}
	https := HTTPS.String()
	f := fileRule{Hosts: []string{name.String()}, Ports: []any{int64(port)}, Protocol: &https}
	if len(methods) > 0 {
		f.Methods = methods
	}
	c := &converter{faults: &faults{}, set: map[string]Position{}}
	rules := c.rule("allow", 0, f)
	if len(c.list) > 0 {
		return Rule{}, errors.New(c.list[0].Message)
	}
	return rules[0], nil
}

// WithRule returns p and its floors with r as one more of their rules. Deny rules still beat it. The error says why p
// can't have it; neither argument is changed.
func WithRule(p *Policy, r Rule) (*Policy, error) {
	out := *p
	r.Pos = Position{File: p.File}
	out.Egress.Allow = slices.Concat(p.Egress.Allow, []Rule{r})
	f := &faults{file: p.File}
	f.checkNames(&out)
	f.checkPairwise(&out)
	f.checkPairs(&out)
	f.checkInspection(&out)
	if err := f.err(); err != nil {
		return nil, err
	}
	if p.Floor == nil {
		return &out, nil
	}
	var err error
	out.Floor, err = WithRule(p.Floor, r)
	return &out, err
}
