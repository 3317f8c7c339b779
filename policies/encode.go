package policies

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Comments are put into an encoded policy, each as one or more "# " lines.
type Comments struct {
	// Head stands above everything.
	Head string
	// Rule, if not nil, gives the comment above a rule; "" for none.
	Rule func(Rule) string
}

// Encode writes p as a policy file: what is in force after includes, with the
// defaults that were filled in. Parsing the result gives p again, but for File,
// Include and positions. A floor is shown in comments, since a file has no key
// for it.
func Encode(p *Policy) []byte { return EncodeWith(p, Comments{}) }

// EncodeWith is Encode with comments.
func EncodeWith(p *Policy, c Comments) []byte {
	w := &writer{}
	w.comment(c.Head)
	if len(p.Include) > 0 {
		w.comment("merged from: " + strings.Join(p.Include, ", "))
	}
	w.line("version = %d", currentVersion)
	w.sandbox(p.Sandbox)
	w.table("egress")
	w.key("default", p.Egress.Default.String())
	w.key("mode", p.Egress.Mode.String())
	for _, r := range p.Egress.Allow {
		w.rule("allow", r, c)
	}
	for _, r := range p.Egress.Deny {
		w.rule("deny", r, c)
	}
	w.ingress(&p.Ingress)
	w.ssh(p.SSH)
	if len(p.Hosts) > 0 {
		w.table("hosts")
		for _, h := range p.Hosts {
			w.key(quoteKey(h.Name.String()), h.Target.String())
		}
	}
	w.table("dns")
	w.key("servers", p.DNS.Servers)
	w.key("min_ttl", p.DNS.MinTTL.String())
	w.key("max_ttl", p.DNS.MaxTTL.String())
	w.tls(p.TLS)
	for _, s := range p.Secrets {
		w.secret(s)
	}
	w.limits(p.Limits)
	w.agent(p.Agent)
	if p.Floor != nil {
		w.line("")
		w.comment("An operator's floor holds as well: only what both allow passes.\n\n" + string(Encode(p.Floor)))
	}
	return []byte(w.String())
}

// writer builds TOML text.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}

func (w *writer) comment(s string) {
	if s == "" {
		return
	}
	for line := range strings.Lines(strings.TrimRight(s, "\n") + "\n") {
		// Comments may quote what a guest sent: keep control characters out.
		clean := strings.Map(func(c rune) rune {
			if isControl(c) {
				return -1
			}
			return c
		}, line)
		w.line("%s", strings.TrimRight("# "+strings.ToValidUTF8(clean, "?"), " "))
	}
}

func (w *writer) table(name string) { w.line("\n[%s]", name) }

// key writes one key. v is a string, an int64, an int, a bool, or a slice.
func (w *writer) key(name string, v any) {
	w.line("%s = %s", name, tomlValue(v))
}

// optional writes a key unless its value is the zero value.
func optional[T comparable](w *writer, name string, v T) {
	var zero T
	if v != zero {
		w.key(name, v)
	}
}

// list writes a key unless the list is empty.
func list[T any](w *writer, name string, v []T) {
	if len(v) > 0 {
		w.key(name, v)
	}
}

func (w *writer) sandbox(s SandboxDefaults) {
	if s.Image == "" && len(s.Command) == 0 && s.CPUs == 0 && s.Memory == 0 {
		return
	}
	w.table("sandbox")
	optional(w, "image", s.Image)
	list(w, "command", s.Command)
	optional(w, "cpus", s.CPUs)
	if s.Memory != 0 {
		w.key("memory", FormatSize(s.Memory))
	}
}

func (w *writer) rule(kind string, r Rule, c Comments) {
	w.line("\n[[egress.%s]]", kind)
	if c.Rule != nil {
		w.comment(c.Rule(r))
	}
	for _, h := range r.Hosts {
		if d := h.Display(); d != h.String() {
			w.comment(d)
		}
	}
	w.key("name", r.Name)
	list(w, "hosts", r.Hosts)
	list(w, "cidrs", r.CIDRs)
	list(w, "within", r.Within)
	list(w, "ports", r.Ports)
	w.key("protocol", r.Protocol.String())
	list(w, "methods", r.Methods)
	list(w, "paths", r.Paths)
	optional(w, "private", r.Private)
	optional(w, "why", r.Why)
}

func (w *writer) tls(t TLS) {
	w.table("tls")
	w.key("inspect", t.Inspect.String())
	list(w, "bypass", t.Bypass)
	optional(w, "via", t.Via)
	for _, ca := range t.ExtraCA {
		w.line("\n[[tls.extra_ca]]")
		w.key("file", ca.File)
		w.key("hosts", ca.Hosts)
	}
}

func (w *writer) secret(s Secret) {
	w.table("secrets." + quoteKey(s.Name))
	switch s.From.Kind {
	case FromEnv:
		w.key("from", "env:"+s.From.Value)
	case FromFile:
		w.key("from", "file:"+s.From.Value)
	case FromCommand:
		argv := slices.Clone(s.From.Argv)
		if len(argv) > 0 {
			argv[0] = "command:" + argv[0]
		}
		w.key("from", argv)
	case FromNone:
	}
	if s.From.TTL != 0 {
		w.key("ttl", s.From.TTL.String())
	}
	optional(w, "refresh_on_401", s.From.RefreshOn401)
	list(w, "hosts", s.Hosts)
	list(w, "in", s.In)
	w.key("placeholder", s.Placeholder)
	w.key("on_violation", s.OnViolation.String())
	optional(w, "kind", s.Kind)
	list(w, "services", s.Services)
	list(w, "regions", s.Regions)
	list(w, "upgrades", s.Upgrades)
	if s.Mint != nil {
		w.line("mint = {path = %s, fields = %s}", tomlValue(s.Mint.Path), tomlValue(s.Mint.Fields))
	}
}

func (w *writer) limits(l Limits) {
	w.table("limits")
	w.key("tcp_connections", l.TCPConnections)
	w.key("udp_flows", l.UDPFlows)
	w.key("dns_per_second", l.DNSPerSecond)
	if l.EgressBytes != 0 {
		w.key("egress_bytes", FormatSize(l.EgressBytes))
	}
	if l.EgressRate != 0 {
		w.key("egress_rate", FormatSize(l.EgressRate)+"/s")
	}
}

// tomlValue formats one value.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlString(v)
	case bool, int, int64:
		return fmt.Sprint(v)
	case []string:
		return tomlList(v, tomlString)
	case []PortRange:
		return tomlList(v, func(r PortRange) string {
			if r.First == r.Last {
				return r.String()
			}
			return tomlString(r.String())
		})
	}
	rv := reflect.ValueOf(v) // the remaining lists are of types that print themselves
	parts := make([]string, rv.Len())
	for i := range parts {
		parts[i] = tomlString(fmt.Sprint(rv.Index(i).Interface()))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func tomlList[T any](list []T, one func(T) string) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = one(v)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// tomlString quotes s as a TOML basic string.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case isControl(c):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
