package policies

import (
	"fmt"
	"reflect"
	"slices"
)

// Merging. Lists are put together: a file's own rules, hosts, secrets, bypass
// names and roots first, then those of its includes in the order of include,
// each file once. Keys of which there is only one (egress.default, limits.…)
// are the including file's if it sets them; else the included file's that does;
// and two included files that disagree are an error, never a matter of order.

// scalarKeys are the keys of which a policy has one, with access to each.
var scalarKeys = []struct {
	key string
	of  func(*Policy) any
}{
	{"sandbox.image", func(p *Policy) any { return &p.Sandbox.Image }},
	{"sandbox.command", func(p *Policy) any { return &p.Sandbox.Command }},
	{"sandbox.cpus", func(p *Policy) any { return &p.Sandbox.CPUs }},
	{"sandbox.memory", func(p *Policy) any { return &p.Sandbox.Memory }},
	{"egress.default", func(p *Policy) any { return &p.Egress.Default }},
	{"egress.mode", func(p *Policy) any { return &p.Egress.Mode }},
	{"ssh.agent_forwarding", func(p *Policy) any { return &p.SSH.AgentForwarding }},
	{"ssh.reverse_forwarding", func(p *Policy) any { return &p.SSH.ReverseForwarding }},
	{"ssh.x11_forwarding", func(p *Policy) any { return &p.SSH.X11Forwarding }},
	{"dns.servers", func(p *Policy) any { return &p.DNS.Servers }},
	{"dns.min_ttl", func(p *Policy) any { return &p.DNS.MinTTL }},
	{"dns.max_ttl", func(p *Policy) any { return &p.DNS.MaxTTL }},
	{"tls.inspect", func(p *Policy) any { return &p.TLS.Inspect }},
	{"tls.via", func(p *Policy) any { return &p.TLS.Via }},
	{"limits.tcp_connections", func(p *Policy) any { return &p.Limits.TCPConnections }},
	{"limits.udp_flows", func(p *Policy) any { return &p.Limits.UDPFlows }},
	{"limits.dns_per_second", func(p *Policy) any { return &p.Limits.DNSPerSecond }},
	{"limits.egress_bytes", func(p *Policy) any { return &p.Limits.EgressBytes }},
	{"limits.egress_rate", func(p *Policy) any { return &p.Limits.EgressRate }},
	{"agent.images", func(p *Policy) any { return &agentOf(p).Images }},
	{"agent.directories", func(p *Policy) any { return &agentOf(p).Directories }},
	{"agent.secrets", func(p *Policy) any { return &agentOf(p).Secrets }},
	{"agent.tools", func(p *Policy) any { return &agentOf(p).Tools }},
	{"agent.may_request", func(p *Policy) any { return &agentOf(p).MayRequest }},
	{"agent.approve", func(p *Policy) any { return &agentOf(p).Approve }},
	{"agent.sandboxes", func(p *Policy) any { return &agentOf(p).Sandboxes }},
	{"agent.cpus", func(p *Policy) any { return &agentOf(p).CPUs }},
	{"agent.memory", func(p *Policy) any { return &agentOf(p).Memory }},
	{"agent.disk", func(p *Policy) any { return &agentOf(p).Disk }},
	{"agent.idle_stop", func(p *Policy) any { return &agentOf(p).IdleStop }},
	{"agent.lifetime", func(p *Policy) any { return &agentOf(p).Lifetime }},
	{"agent.children.count", func(p *Policy) any { return &childrenOf(p).Count }},
	{"agent.children.total", func(p *Policy) any { return &childrenOf(p).Total }},
	{"agent.children.depth", func(p *Policy) any { return &childrenOf(p).Depth }},
	{"agent.children.cpus", func(p *Policy) any { return &childrenOf(p).CPUs }},
	{"agent.children.memory", func(p *Policy) any { return &childrenOf(p).Memory }},
	{"agent.children.images", func(p *Policy) any { return &childrenOf(p).Images }},
	{"agent.children.lifetime", func(p *Policy) any { return &childrenOf(p).Lifetime }},
}

// childrenOf makes [agent.children] where a file that sets a key of it is merged in.
func childrenOf(p *Policy) *ChildBudget {
	a := agentOf(p)
	if a.Children == nil {
		a.Children = newChildBudget()
	}
	return a.Children
}

// agentOf makes [agent] where a file that sets a key of it is merged in.
func agentOf(p *Policy) *Agent {
	if p.Agent == nil {
		p.Agent = new(Agent)
	}
	return p.Agent
}

// merge returns the policy of u with those of its includes in it.
func (l *loader) merge(u *unit) *Policy {
	p := u.policy
	own := make(map[string]bool, len(u.set))
	for key := range u.set {
		own[key] = true
	}
	for _, inc := range u.includes {
		q := l.merge(inc)
		p.Egress.Allow = append(p.Egress.Allow, q.Egress.Allow...)
		p.Egress.Deny = append(p.Egress.Deny, q.Egress.Deny...)
		p.Ingress.Allow = append(p.Ingress.Allow, q.Ingress.Allow...)
		p.Hosts = append(p.Hosts, q.Hosts...)
		p.Secrets = append(p.Secrets, q.Secrets...)
		p.TLS.ExtraCA = append(p.TLS.ExtraCA, q.TLS.ExtraCA...)
		for _, b := range q.TLS.Bypass {
			if !slices.Contains(p.TLS.Bypass, b) {
				p.TLS.Bypass = append(p.TLS.Bypass, b)
			}
		}
		if q.Agent != nil {
			agentOf(p)
			if q.Agent.Children != nil {
				childrenOf(p)
			}
		}
		l.mergeScalars(u, inc, own)
	}
	return p
}

// mergeScalars takes over the scalars of inc that u doesn't set itself.
func (l *loader) mergeScalars(u, inc *unit, own map[string]bool) {
	for _, s := range scalarKeys {
		pos, set := inc.set[s.key]
		if !set || own[s.key] {
			continue
		}
		to, from := reflect.ValueOf(s.of(u.policy)).Elem(), reflect.ValueOf(s.of(inc.policy)).Elem()
		if first, twice := u.set[s.key]; twice && !reflect.DeepEqual(to.Interface(), from.Interface()) {
			l.faults.addAt(pos, s.key, fmt.Sprintf("two included files disagree; %s sets it too", first), "set it in the file that includes both")
			continue
		}
		to.Set(from)
		u.set[s.key] = pos
	}
}
