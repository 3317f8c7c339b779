package secretproxy

import (
	"slices"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// mayGo reports whether the secret is for the host and port that the request
// goes to. The zero Name, a literal address, never matches a pattern.
func (ex *exchange) mayGo(e *entry) bool {
	return slices.ContainsFunc(e.holder.Policy().Hosts, func(h policies.SecretHost) bool {
		return h.Match(ex.host, ex.guest.dst().Port())
	}) && !slices.ContainsFunc(ex.state.policy.TLS.Bypass, func(p hostname.Pattern) bool { return p.Match(ex.host) })
}

// wrongPort reports whether the secret is for that host, but not for the port
// that the guest connected to, where another program may answer.
func (ex *exchange) wrongPort(e *entry) bool {
	port := ex.guest.dst().Port()
	names := func(h policies.SecretHost) bool { return h.Pattern.Match(ex.host) }
	opens := func(h policies.SecretHost) bool { return h.Match(ex.host, port) }
	hosts := e.holder.Policy().Hosts
	return slices.ContainsFunc(hosts, names) && !slices.ContainsFunc(hosts, opens)
}
