package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/msb-project/msb/policies"
)

// dotPort is DNS over TLS and over QUIC (RFC 7858, RFC 9250).
const dotPort = 853

// httpsPort is where a UDP flow is taken for QUIC (RFC 9114), and a TCP flow is
// expected to say a name; httpPort is expected to say a Host.
const (
	httpsPort = 443
	httpPort  = 80
)

// rule is a policies.Rule made ready for matching.
type rule struct {
	index     int // place in its list: the first of several that match is named
	name, why string
	proto     policies.Protocol
	ports     []policies.PortRange // empty: every port
	private   bool
	within    []span // the addresses that its names may have; empty: every public one
	methods   []string
	paths     []string // without those that match everything
	request   bool     // methods or paths were given: judged request by request
	byName    bool
	says853   bool // a port range is exactly 853
}

// compileRule reads r, the index-th of list ("allow" or "deny").
func compileRule(r *policies.Rule, index int, list string) (*rule, error) {
	c := &rule{
		index: index, name: r.Name, why: r.Why, proto: r.Protocol, ports: r.Ports,
		private: r.Private, methods: r.Methods, byName: len(r.Hosts) > 0,
		request: len(r.Methods)+len(r.Paths) > 0,
	}
	if c.name == "" {
		c.name = list + "[" + strconv.Itoa(index) + "]"
	}
	switch {
	case len(r.Hosts) > 0 && len(r.CIDRs) > 0:
		return nil, fmt.Errorf("rule %q has both hosts and cidrs: write two rules", c.name)
	case len(r.Within) > 0 && (list != "allow" || len(r.Hosts) == 0):
		return nil, fmt.Errorf("rule %q has within, which goes with hosts of an allow rule", c.name)
	case list == "allow" && len(r.Hosts)+len(r.CIDRs) == 0:
		return nil, fmt.Errorf("rule %q allows no destination: name hosts or cidrs", c.name)
	case c.request && r.Protocol != policies.HTTPS && r.Protocol != policies.HTTP && (list == "allow" || r.Protocol != policies.Any):
		return nil, fmt.Errorf("rule %q has methods or paths, which need protocol https or http, not %v", c.name, r.Protocol)
	}
	for _, p := range r.Within {
		c.within = append(c.within, span{plainPrefix(p), policies.OpensSpecial(p)})
	}
	c.paths = usefulPaths(r.Paths)
	for _, p := range r.Ports {
		c.says853 = c.says853 || p.First == dotPort && p.Last == dotPort
	}
	return c, nil
}

// span is a range of within; special says that it opens what isn't public in it.
type span struct {
	netip.Prefix
	special bool
}

// opens reports whether the span opens a, which is of the given class.
func (s span) opens(a netip.Addr, class Class) bool {
	return s.Contains(a) && (class == ClassPublic || s.special && opensMetadata(class, s.IsSingleIP()))
}

// opensMetadata reports whether a range opens addresses of a class at all: a
// metadata address is opened by itself alone.
func opensMetadata(class Class, single bool) bool { return single || class != ClassMetadata }

// mayHave returns the range by which a name of the rule may have the address a, and
// whether it may. Where the rule names no ranges, that is every public address, and
// the range is none.
func (r *rule) mayHave(a netip.Addr, class Class) (netip.Prefix, bool) {
	for _, s := range r.within {
		if s.opens(a, class) {
			return s.Prefix, true
		}
	}
	return netip.Prefix{}, len(r.within) == 0 && class == ClassPublic
}

// usefulPaths returns nil if one of the globs matches every path, so that such
// a rule has no need to read paths that servers disagree on.
func usefulPaths(paths []string) []string {
	for _, p := range paths {
		if p == "**" || p == "/**" {
			return nil
		}
	}
	return paths
}

// carries reports whether the rule is about flows of transport p.
func (r *rule) carries(p Proto) bool {
	switch r.proto {
	case policies.Any:
		return true
	case policies.HTTPS, policies.HTTP, policies.ProtocolTLS, policies.TCP:
		return p == TCP
	case policies.UDP:
		return p == UDP
	case policies.ICMP:
		return p == ICMP
	}
	return false
}

// matchesPort reports whether a flow of transport p to port is within the
// rule's ports. ICMP has no ports: a rule that lists some isn't about it.
func (r *rule) matchesPort(p Proto, port uint16) bool {
	if len(r.ports) == 0 || r.proto == policies.ICMP {
		return true
	}
	return p != ICMP && r.listsPort(port)
}

// covers reports whether a flow of transport p to port is one of the rule's.
func (r *rule) covers(p Proto, port uint16) bool { return r.carries(p) && r.matchesPort(p, port) }

func (r *rule) listsPort(port uint16) bool {
	for _, pr := range r.ports {
		if pr.Contains(port) {
			return true
		}
	}
	return false
}

// webPort reports whether the rule has reason to expect a name on port: a rule
// without ports expects one where HTTP and TLS usually are. Waiting for a name
// anywhere else would stall protocols in which the server speaks first.
func (r *rule) webPort(port uint16) bool {
	if len(r.ports) == 0 {
		return port == httpsPort || port == httpPort
	}
	return r.listsPort(port)
}

// layer7 reports whether the rule is about what the client says, not only
// about where it connects.
func (r *rule) layer7() bool {
	switch r.proto {
	case policies.HTTPS, policies.HTTP, policies.ProtocolTLS:
		return true
	case policies.Any, policies.TCP, policies.UDP, policies.ICMP:
	}
	return false
}

// http reports whether the rule is about HTTP, inside TLS or not: only such
// flows are ever opened.
func (r *rule) http() bool {
	switch r.proto {
	case policies.HTTPS, policies.HTTP:
		return true
	case policies.Any, policies.ProtocolTLS, policies.TCP, policies.UDP, policies.ICMP:
	}
	return false
}

// speaks reports whether bytes known to be app can be what the rule is about.
func (r *rule) speaks(app App) bool {
	switch r.proto {
	case policies.HTTPS, policies.ProtocolTLS:
		return app == AppTLS
	case policies.HTTP:
		return app == AppHTTP
	case policies.Any, policies.TCP, policies.UDP, policies.ICMP:
	}
	return true
}

// matchesMethod reports whether the rule is about requests with this method.
// Methods are case-sensitive (RFC 9110, 9.1).
func (r *rule) matchesMethod(method string) bool {
	return len(r.methods) == 0 || slices.Contains(r.methods, method)
}

// matchesMethodFolded is matchesMethod without regard to case. Deny rules use it: frameworks that write each method in
// upper case (Werkzeug, Symfony) take "delete" for DELETE.
func (r *rule) matchesMethodFolded(method string) bool {
	return len(r.methods) == 0 || slices.ContainsFunc(r.methods, func(m string) bool { return strings.EqualFold(m, method) })
}

// matchesPath reports whether the rule is about this clean path.
func (r *rule) matchesPath(clean string) bool {
	for _, g := range r.paths {
		if policies.MatchPath(g, clean) {
			return true
		}
	}
	return len(r.paths) == 0
}

// matchesPathFolded is matchesPath without regard to case. Deny rules use it:
// a server that folds case must not be a way around them.
func (r *rule) matchesPathFolded(clean string) bool {
	if r.matchesPath(clean) {
		return true
	}
	folded := strings.ToLower(clean)
	for _, g := range r.paths {
		if policies.MatchPath(strings.ToLower(g), folded) {
			return true
		}
	}
	return false
}

// key identifies rules that give the same answer to every flow; within one
// list, only the first of them is kept.
func (r *rule) key() string {
	if r.request {
		return strconv.Itoa(r.index)
	}
	return fmt.Sprint("=", r.proto, r.private, r.within, r.ports)
}
