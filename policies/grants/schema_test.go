package grants_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// takes are the keys of a policy file that take something from the host: two policies that differ in that key alone, of
// which the second takes what the first doesn't. %d is the directory of the file.
var takes = map[string][2]string{
	"include":                  {"", "include = [\"../shared.toml\"]\n"},
	"sandbox.image":            {"", "[sandbox]\nimage = \"dir:.\"\n"},
	"egress.allow.cidrs":       {"", "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [22]\nprivate = true\n"},
	"egress.allow.private":     {"[[egress.allow]]\ncidrs = [\"8.8.8.8/32\"]\nports = [22]\n", "[[egress.allow]]\ncidrs = [\"8.8.8.8/32\"]\nports = [22]\nprivate = true\n"},
	"egress.allow.within":      {"[[egress.allow]]\nhosts = [\"a.example\"]\n", "[[egress.allow]]\nhosts = [\"a.example\"]\nwithin = [\"10.0.0.0/8\"]\n"},
	"egress.allow.hosts":       {"[[egress.allow]]\nhosts = [\"a.example\"]\nwithin = [\"10.0.0.0/8\"]\n", "[[egress.allow]]\nhosts = [\"b.example\"]\nwithin = [\"10.0.0.0/8\"]\n"},
	"ingress.allow.cidrs":      {"", "[[ingress.allow]]\ncidrs = [\"192.168.1.0/24\"]\n"},
	"ingress.allow.sandboxes":  {"[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [80]\n", "[[ingress.allow]]\nsandboxes = [\"db\"]\nports = [80]\n"},
	"ingress.allow.ports":      {"[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [80]\n", "[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [81]\n"},
	"ssh.agent_forwarding":     {"", "[ssh]\nagent_forwarding = true\n"},
	"ssh.reverse_forwarding":   {"", "[ssh]\nreverse_forwarding = true\n"},
	"ssh.x11_forwarding":       {"", "[ssh]\nx11_forwarding = true\n"},
	"hosts.*":                  {"", "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n"},
	"dns.servers":              {"", "[dns]\nservers = [\"udp://9.9.9.9\"]\n"},
	"tls.via":                  {"", "[tls]\nvia = \"http://10.0.0.1:3128\"\n"},
	"tls.extra_ca.file":        {"[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"a.example\"]\n", "[[tls.extra_ca]]\nfile = \"other.pem\"\nhosts = [\"a.example\"]\n"},
	"tls.extra_ca.hosts":       {"[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"a.example\"]\n", "[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"b.example\"]\n"},
	"secrets.*.from":           {secretWith(`from = "env:A"`), secretWith(`from = "env:B"`)},
	"secrets.*.hosts":          {secretWith(`hosts = ["a.example"]`), secretWith(`hosts = ["b.example"]`)},
	"secrets.*.in":             {secretWith(`in = ["basic"]`), secretWith(`in = ["body"]`)},
	"secrets.*.on_violation":   {secretWith(""), secretWith(`on_violation = "terminate"`)},
	"secrets.*.ttl":            {secretWith(`from = "command:true"`), secretWith(`from = "command:true"`, `ttl = "1s"`)},
	"secrets.*.refresh_on_401": {secretWith(`from = "command:true"`), secretWith(`from = "command:true"`, `refresh_on_401 = true`)},
	"secrets.*.kind":           {secretWith(""), signing("s3", "eu-1")},
	"secrets.*.services":       {signing("s3", "eu-1"), signing("sts", "eu-1")},
	"secrets.*.regions":        {signing("s3", "eu-1"), signing("s3", "us-1")},
	"secrets.*.upgrades":       {secretWith(""), secretWith(`upgrades = ["spdy/3.1"]`)},
	"secrets.*.mint.path":      {secretWith(`mint = {path = "/a", fields = ["t"]}`), secretWith(`mint = {path = "/b", fields = ["t"]}`)},
	"secrets.*.mint.fields":    {secretWith(`mint = {path = "/a", fields = ["t"]}`), secretWith(`mint = {path = "/a", fields = ["u"]}`)},
	"agent.images":             {"[agent]\n", "[agent]\nimages = [\"dir:.\"]\n"},
	"agent.directories":        {"[agent]\n", "[agent]\ndirectories = [\"%d:/work\"]\n"},
	"agent.children.images":    {"[agent.children]\n", "[agent.children]\nimages = [\"dir:.\"]\n"},
}

// Reasons why a key takes nothing from the host.
const (
	text      = "it is text for people"
	narrows   = "it says which public destinations there are, or narrows what other keys open"
	ownLimits = "it bounds what one sandbox may use"
	inGuest   = "it is about the guest alone"
	reach     = "sandboxes get of it what the other keys of this file have, which are grants"
)

var takesNothing = map[string]string{
	"version":         "it is the form of the file",
	"sandbox.command": inGuest, "sandbox.cpus": ownLimits, "sandbox.memory": ownLimits,
	"egress.default": narrows, "egress.mode": "special-purpose ranges stay shut in report mode too",
	"egress.allow.name": text, "egress.allow.ports": narrows, "egress.allow.protocol": narrows, "egress.allow.methods": narrows, "egress.allow.paths": narrows, "egress.allow.why": text,
	"egress.deny.name": text, "egress.deny.hosts": narrows, "egress.deny.cidrs": narrows, "egress.deny.within": narrows, "egress.deny.ports": narrows, "egress.deny.protocol": narrows,
	"egress.deny.methods": narrows, "egress.deny.paths": narrows, "egress.deny.private": narrows, "egress.deny.why": text,
	"ingress.allow.name": text, "ingress.allow.why": text,
	"dns.min_ttl": inGuest, "dns.max_ttl": inGuest,
	"tls.inspect": "secrets are put into inspected requests alone, and their hosts are grants", "tls.bypass": narrows,
	"secrets.*.placeholder":  "it is the shape of what the guest holds in place of the value",
	"limits.tcp_connections": ownLimits, "limits.udp_flows": ownLimits, "limits.dns_per_second": ownLimits, "limits.egress_bytes": ownLimits, "limits.egress_rate": ownLimits,
	"agent.secrets": reach, "agent.tools": reach, "agent.may_request": "what a person approves is https to one public name, which a rule of the file could open too",
	"agent.approve":   "what can be approved is bounded by may_request",
	"agent.sandboxes": ownLimits, "agent.cpus": ownLimits, "agent.memory": ownLimits, "agent.disk": ownLimits, "agent.idle_stop": ownLimits, "agent.lifetime": ownLimits,
	"agent.children.count": ownLimits, "agent.children.total": ownLimits, "agent.children.depth": ownLimits, "agent.children.cpus": ownLimits, "agent.children.memory": ownLimits, "agent.children.lifetime": ownLimits,
}

// secretWith is a secret with these lines in place of its own.
func secretWith(lines ...string) string {
	all := map[string]string{"from": `from = "env:A"`, "hosts": `hosts = ["a.example"]`, "in": `in = ["basic"]`}
	for _, l := range lines {
		key, _, _ := strings.Cut(l, " ")
		all[key] = l
	}
	return web + "[secrets.T]\n" + strings.Join(slices.Sorted(maps.Values(all)), "\n") + "\n"
}

func signing(service, region string) string {
	return strings.Replace(secretWith(`kind = "aws-sigv4"`, `services = ["`+service+`"]`, `regions = ["`+region+`"]`), `in = ["basic"]`, "", 1)
}

// schemaKeys are the keys below a part of the schema of a policy file that have a value.
func schemaKeys(path string, s map[string]any) (keys []string) {
	if items, ok := s["items"].(map[string]any); ok && items["type"] == "object" {
		return schemaKeys(path, items)
	}
	below, _ := s["properties"].(map[string]any)
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		below = map[string]any{"*": more}
	}
	if below == nil {
		return []string{path}
	}
	for key, of := range below {
		keys = append(keys, schemaKeys(strings.TrimPrefix(path+"."+key, "."), of.(map[string]any))...)
	}
	return keys
}

// TestI15_EveryKeyIsAGrantOrTakesNothing walks the schema of policy files: a key that is new has to be one or the other.
func TestI15_EveryKeyIsAGrantOrTakesNothing(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	if err := json.Unmarshal(policies.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	keys := schemaKeys("", schema)
	for _, key := range keys {
		_, grant := takes[key]
		if why, ok := takesNothing[key]; ok == grant || ok && why == "" {
			t.Errorf("%s: it is either a grant or takes nothing from the host, and why", key)
		}
	}
	for _, key := range slices.Concat(slices.Collect(maps.Keys(takes)), slices.Collect(maps.Keys(takesNothing))) {
		if !slices.Contains(keys, key) {
			t.Errorf("%s: there is no such key", key)
		}
	}

	dir := realDir(t)
	put(t, dir, "shared.toml", head, 0o600)
	put(t, dir, "mine/ca.pem", "roots", 0o600)
	put(t, dir, "mine/other.pem", "others", 0o600)
	for key, c := range takes {
		var sets [2]grants.Set
		for i, text := range c {
			sets[i], _ = of(t, put(t, dir, "mine/p.toml", head+strings.ReplaceAll(text, "%d", filepath.Join(dir, "mine")), 0o600))
		}
		if more := sets[1].Beyond(sets[0]); len(more) != 1 {
			t.Errorf("%s: the second takes %q beyond the first, want one grant", key, more)
		}
	}
	// An image of a registry needs an approval only if it can't be had without one.
	for _, key := range []string{"[sandbox]\nimage = \"%s\"\n", "[agent]\nimages = [\"%s\"]\n", "[agent.children]\nimages = [\"%s\"]\n"} {
		set, _ := of(t, put(t, dir, "mine/p.toml", head+strings.ReplaceAll(key, "%s", "registry.example/a:1"), 0o600))
		if len(set) != 1 || set[0].Kind != grants.Registry || !set[0].Optional() {
			t.Errorf("%s: %q", key, set)
		}
	}
}
