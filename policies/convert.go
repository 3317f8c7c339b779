package policies

import (
	"fmt"
	"path/filepath"

	"github.com/msb-project/msb/hostname"
)

// converter turns one file's tree into a Policy. Faults are collected; what is
// faulty is left out of the result, which nobody uses then.
type converter struct {
	*faults
	// set holds the paths of scalar keys that the file sets, for the merge.
	set map[string]Position
	// dir is the directory that relative paths start from.
	dir string
}

func (c *converter) policy(doc fileDoc) *Policy {
	p := Default()
	p.File = c.file
	p.Include = doc.Include
	switch {
	case doc.Version == nil:
		c.addAt(Position{File: c.file, Line: 1, Col: 1}, "version", "it is missing", "write version = 1 at the top of the file")
	case *doc.Version != currentVersion:
		c.add("version", fmt.Sprintf("version %d is not known", *doc.Version), "this msb reads version 1; a newer one may be needed")
	}
	if doc.Sandbox != nil {
		c.sandbox(&p.Sandbox, doc.Sandbox)
	}
	if doc.Egress != nil {
		c.egress(&p.Egress, doc.Egress)
	}
	if doc.Ingress != nil {
		c.ingress(&p.Ingress, doc.Ingress)
	}
	if doc.SSH != nil {
		c.ssh(&p.SSH, doc.SSH)
	}
	c.hosts(p, doc.Hosts)
	if doc.DNS != nil {
		c.dns(&p.DNS, doc.DNS)
	}
	if doc.TLS != nil {
		c.tls(&p.TLS, doc.TLS)
	}
	c.secrets(p, doc.Secrets)
	if doc.Limits != nil {
		c.limits(&p.Limits, doc.Limits)
	}
	if doc.Agent != nil {
		p.Agent = c.agent(doc.Agent)
	}
	return p
}

// scalar notes that the file sets a key of which there is only one.
func (c *converter) scalar(key string) { c.set[key] = c.places.of(key) }

func (c *converter) sandbox(s *SandboxDefaults, f *fileSandbox) {
	if f.Image != nil {
		c.scalar("sandbox.image")
		if s.Image = *f.Image; s.Image == "" {
			c.add("sandbox.image", "it is empty", "name an image, or leave the key out")
		}
	}
	if f.Command != nil {
		c.scalar("sandbox.command")
		if s.Command = f.Command; len(s.Command) == 0 || s.Command[0] == "" {
			c.add("sandbox.command", "it names no program", "write a list such as [\"/bin/sh\"]")
		}
	}
	if f.CPUs != nil {
		s.CPUs = c.count("sandbox.cpus", *f.CPUs, maxCPUs)
	}
	if f.Memory != nil {
		s.Memory = c.size("sandbox.memory", f.Memory, ParseSize)
		if s.Memory > 0 && s.Memory < minMemory {
			c.add("sandbox.memory", "less than the guest's kernel boots with", "write at least \"96M\"")
		}
	}
}

const (
	// maxCPUs is what a machine takes at most (vm.MaxCPUs).
	maxCPUs = 64
	// minMemory is the least that the guest kernel and the agent boot with (vm.MinMemoryMiB).
	minMemory = 96 << 20
)

func (c *converter) egress(e *EgressRules, f *fileEgress) {
	e.Default = DefaultAction(c.enum("egress.default", f.Default, defaultActions))
	e.Mode = Mode(c.enum("egress.mode", f.Mode, modes))
	for i, r := range f.Allow {
		e.Allow = append(e.Allow, c.rule("allow", i, r)...)
	}
	for i, r := range f.Deny {
		e.Deny = append(e.Deny, c.rule("deny", i, r)...)
	}
}

func (c *converter) hosts(p *Policy, hosts map[string]string) {
	for name, target := range hosts {
		key := joinKey("hosts", name)
		m := HostMapping{Pos: c.places.of(key)}
		var err error
		if m.Name, err = hostname.Parse(name); err != nil {
			c.addErr(key, err)
		}
		if m.Target, err = parseTarget(target); err != nil {
			c.addErr(key, err)
		}
		p.Hosts = append(p.Hosts, m)
	}
	sortByPlace(p.Hosts, func(m HostMapping) Position { return m.Pos })
}

func (c *converter) tls(t *TLS, f *fileTLS) {
	t.Inspect = Inspect(c.enum("tls.inspect", f.Inspect, inspects))
	t.Bypass = c.patterns("tls.bypass", f.Bypass)
	for i, ca := range f.ExtraCA {
		key := fmt.Sprintf("tls.extra_ca[%d]", i)
		e := ExtraCA{Hosts: c.patterns(key+".hosts", ca.Hosts), Pos: c.places.of(key)}
		if ca.File == nil || *ca.File == "" {
			c.lacks(key, "file", "it has no file", "add file = \"ca.pem\"")
		} else {
			e.File = c.relative(*ca.File)
		}
		if len(ca.Hosts) == 0 {
			c.lacks(key, "hosts", "it has no hosts", "name the hosts that these roots are for; hosts = [\"*\"] trusts them for every name")
		}
		t.ExtraCA = append(t.ExtraCA, e)
	}
	if f.Via != nil {
		c.scalar("tls.via")
		if t.Via = *f.Via; checkVia(t.Via) != nil {
			c.addErr("tls.via", checkVia(t.Via))
		}
	}
}

func (c *converter) limits(l *Limits, f *fileLimits) {
	if f.TCPConnections != nil {
		l.TCPConnections = c.count("limits.tcp_connections", *f.TCPConnections, maxLimit)
	}
	if f.UDPFlows != nil {
		l.UDPFlows = c.count("limits.udp_flows", *f.UDPFlows, maxLimit)
	}
	if f.DNSPerSecond != nil {
		l.DNSPerSecond = c.count("limits.dns_per_second", *f.DNSPerSecond, maxLimit)
	}
	if f.EgressBytes != nil {
		l.EgressBytes = c.size("limits.egress_bytes", f.EgressBytes, ParseSize)
	}
	if f.EgressRate != nil {
		l.EgressRate = c.size("limits.egress_rate", f.EgressRate, parseRate)
	}
}

// maxLimit is above every count that makes sense and keeps sums in an int.
const maxLimit = 1 << 20

// count checks that a whole number is from 1 to most.
func (c *converter) count(key string, n, most int64) int {
	c.scalar(key)
	if n < 1 || n > most {
		c.add(key, fmt.Sprintf("%d is out of range", n), fmt.Sprintf("write a number from 1 to %d", most))
		return 1
	}
	return int(n)
}

// size reads a size or rate: text with its unit, or a number of bytes above 0.
func (c *converter) size(key string, v any, parse func(string) (int64, error)) int64 {
	c.scalar(key)
	switch v := v.(type) {
	case string:
		n, err := parse(v)
		if err == nil && n == 0 {
			err = fmt.Errorf("%q lets nothing through; leave the key out for no limit", v)
		}
		if err != nil {
			c.addErr(key, err)
		}
		return n
	case int64:
		if v <= 0 {
			c.add(key, fmt.Sprintf("%d is out of range", v), "write a number of bytes above 0")
		}
		return v
	}
	c.add(key, "it is "+typeName(v), "write text with a unit, such as \"512M\"")
	return 0
}

// enum reads one of a few words; a key left out is the first.
func (c *converter) enum(key string, s *string, e enum) uint8 {
	if s == nil {
		return 0
	}
	c.scalar(key)
	v, ok := e.value(*s)
	if !ok {
		remedy := "write one of " + e.list()
		if guess := Closest(*s, e); guess != "" {
			remedy = fmt.Sprintf("did you mean %q? It is one of %s", guess, e.list())
		}
		c.add(key, fmt.Sprintf("unknown value %q", *s), remedy)
	}
	return v
}

// relative resolves a path against the directory of the policy file.
func (c *converter) relative(path string) string {
	if filepath.IsAbs(path) || c.dir == "" {
		return path
	}
	return filepath.Join(c.dir, path)
}
