package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

const (
	// maxPolicy bounds the text of a client's policy, in bytes, maxAllow the rules of its allow, and maxRule one of them.
	maxPolicy = 64 << 10
	maxAllow  = 256
	maxRule   = 1 << 10
)

// labelPrefix begins the label of every sandbox of msb mcp.
const labelPrefix = "mcp-"

// family begins the label of the sandboxes of every version of the floor's file; a floor without a file has a family too.
// Sandboxes of other families are not this server's.
func (o *Options) family() string { return labelPrefix + digest([]byte(o.Floor.Path)) + "-" }

// label ties sandboxes to the floor and the directories that they were made with, since a sandbox of another version may do
// what this floor forbids. Of [agent] only the remaining secrets and directories count; own checks the bounds.
func (o *Options) label() string {
	reach := *o.Floor
	reach.Agent = nil
	of := append(policies.Encode(&reach), o.Floor.Path...)
	if len(o.Directories) > 0 {
		of = fmt.Appendf(of, "%+v%q%v", o.Directories, o.Hide, o.HideCredentials)
	}
	return o.family() + digest(of)
}

func digest(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:16])
}

// machineArgs are what a client says about a sandbox to be made.
type machineArgs struct {
	Image    string   `json:"image"`
	CPUs     int      `json:"cpus"`
	MemoryMB int64    `json:"memory_mb"`
	Allow    []string `json:"allow"`
	Policy   *string  `json:"policy"`
	Volumes  []string `json:"volumes"`

	// also changes the resulting Config, within the floor; made runs when the sandbox has been made. Both may be nil.
	also func(*sandbox.Config) error
	made func(context.Context, machine) error
}

func (o *Options) base(a *machineArgs) sandbox.Config {
	return sandbox.Config{
		Home: o.Home.Dir(), Program: o.Program, Backend: o.Backend, Floor: o.Floor, Image: a.Image, Pull: image.PullNever,
		CPUs: a.CPUs, Memory: a.MemoryMB << 20, Lifetime: o.Lifetime,
		Directories: o.Directories, Hide: o.Hide, HideCredentials: o.HideCredentials, OperatorDirectories: true, RealDirectories: true,
	}
}

// config is the sandbox that a client asks for, at most the floor.
func (o *Options) config(a *machineArgs) (sandbox.Config, error) {
	cfg := o.base(a)
	if a.CPUs < 0 || a.CPUs > o.CPUs {
		return cfg, wrong("cpus %d: give it 1 to %d", a.CPUs, o.CPUs)
	}
	if least := int64(sandbox.MinMemory >> 20); a.MemoryMB != 0 && (a.MemoryMB < least || a.MemoryMB > o.Memory>>20) {
		return cfg, wrong("memory_mb %d: give it %d to %d", a.MemoryMB, least, o.Memory>>20)
	}
	if cfg.Memory == 0 {
		cfg.Memory = min(o.Memory, sandbox.DefaultMemory)
	}
	own := o.Floor.Sandbox.Image
	if cfg.Image == "" {
		cfg.Image, cfg.PolicyImage = own, own != ""
	}
	permitted := slices.Clip(o.Images)
	if own != "" {
		permitted = append(permitted, own)
	}
	i := slices.IndexFunc(permitted, func(ref string) bool { return image.SameReference(ref, cfg.Image) })
	switch { // a local image names files of the host
	case i >= 0:
		cfg.Image, cfg.Pull = permitted[i], image.PullMissing
		cfg.PolicyImage = cfg.PolicyImage || o.Floor.Agent != nil
	case policies.LocalImage(cfg.Image):
		return cfg, wrong("image %q names files of the host; name one of a registry, or leave image out", printed(cfg.Image))
	}
	var err error
	cfg.Policy, err = o.policy(a)
	return cfg, err
}

// takesNothing is the error for a client's policy that would take something from the host.
const takesNothing = "a client's policy has no secrets, no extra_ca, no [sandbox] and no [agent]; the operator's floor names secrets, and a sandbox gets those whose hosts it may reach"

// secretsTable is the key of secrets in a policy, however it is written.
var secretsTable = regexp.MustCompile(`(?m)^\s*\[?\s*["']?secrets["']?\s*[].=]`)

// policy is the policy that a client asks for, under the floor, with those of the floor's secrets that it can still use. A
// client that asks for nothing gets the floor's own.
func (o *Options) policy(a *machineArgs) (*policies.Policy, error) {
	if a.Policy == nil && a.Allow == nil {
		return o.Floor, nil
	}
	p := policies.Default() // allow: [] allows nothing
	if a.Policy != nil {
		if strings.TrimSpace(*a.Policy) == "" {
			return nil, wrong("policy is empty; leave it out for the operator's own, or give allow: [] for no network")
		}
		if len(*a.Policy) > maxPolicy {
			return nil, wrong("a policy of %d bytes; give at most %d", len(*a.Policy), maxPolicy)
		}
		if secretsTable.MatchString(*a.Policy) { // before rules that it can't have are applied to it
			return nil, wrong(takesNothing)
		}
		var err error
		if p, err = policies.Parse("policy", []byte(*a.Policy), nil); err != nil {
			return nil, wrong("%w", err)
		}
	}
	if len(a.Allow) > maxAllow {
		return nil, wrong("%d allow rules; give at most %d", len(a.Allow), maxAllow)
	}
	if slices.ContainsFunc(a.Allow, func(rule string) bool { return len(rule) > maxRule }) {
		return nil, wrong("allow: a rule of more than %d bytes", maxRule)
	}
	own := p.Hosts
	p.Hosts = slices.Concat(own, o.Floor.Hosts)
	if err := policies.AddFlags(p, policies.Flags{Allow: a.Allow}); err != nil {
		return nil, wrong("allow: %s", strings.ReplaceAll(err.Error(), "--allow ", ""))
	}
	p.Hosts = own
	// A client takes nothing from the host. A policy that names a file is refused before anything opens the file: the error
	// would tell whether it exists and where a link leads.
	if len(p.Secrets) > 0 || len(p.TLS.ExtraCA) > 0 || p.Agent != nil || !reflect.DeepEqual(p.Sandbox, policies.Default().Sandbox) {
		return nil, wrong(takesNothing)
	}
	set, err := o.Home.Trust().Grants(p)
	if err != nil {
		return nil, err
	}
	if len(set) > 0 {
		return nil, wrong("a client's policy takes nothing from the host, but this takes %s; only the operator's floor may", set.Lines()[0])
	}
	p.Hosts = slices.Concat(own, o.mappings(p))
	if _, err := policies.Tighten(o.Floor, p); err != nil {
		return nil, say("beyond the operator's floor: %w", err)
	}
	return policies.Inherit(o.Floor, p), nil
}

// targetOf is a destination of a rule for one name, as sandbox.Explain has it.
func targetOf(r *policies.Rule) string {
	host, port := r.Hosts[0].String(), uint16(443)
	switch {
	case r.Protocol == policies.ICMP:
		return host + "/icmp"
	case len(r.Ports) > 0:
		port = r.Ports[0].First
	}
	to := fmt.Sprintf("%s:%d", host, port)
	if r.Protocol == policies.UDP {
		to += "/udp"
	}
	return to
}

// mappings copies the floor's [hosts] into p, for the names that p allows: a mapping of the floor applies only if p has the
// same one. Names that p doesn't allow are left out, since a mapping alone would allow them.
func (o *Options) mappings(p *policies.Policy) []policies.HostMapping {
	var all []policies.HostMapping
	for _, m := range o.Floor.Hosts {
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

// maxUseless bounds the rules that a result names.
const maxUseless = 10

// useless names the operator's secrets that a call's policy can't use, and the allow rules of the call that allow nothing
// because the operator doesn't. It skips rules for wildcards and ranges.
func (o *Options) useless(a *machineArgs) ([]string, error) {
	p, err := o.policy(a)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := range o.Floor.Secrets {
		name := o.Floor.Secrets[i].Name
		if !slices.ContainsFunc(p.Secrets, func(s policies.Secret) bool { return s.Name == name }) {
			lines = append(lines, "secret "+name+": not in this sandbox, which may not reach its hosts over inspected https")
		}
	}
	rules := 0
	for _, allow := range a.Allow {
		r, err := policies.ParseAllowFlag(allow)
		if err != nil || len(r.Hosts) != 1 || r.Hosts[0].Wildcard() {
			continue
		}
		answer, err := sandbox.Explain(o.Floor, targetOf(&r), "", "")
		if err != nil {
			return nil, err
		}
		if !answer.Denied() {
			continue
		}
		if rules++; rules > maxUseless {
			return append(lines, "others too"), nil
		}
		lines = append(lines, printed(allow)+": the operator does not allow it")
	}
	return lines, nil
}
