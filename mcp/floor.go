package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
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

// policy is what a client asks for, under the floor, with the floor's secrets that are of use under it; the floor's own
// where it asks for nothing.
func (o *Options) policy(a *machineArgs) (*policies.Policy, error) {
	if a.Policy == nil && a.Allow == nil {
		return o.Floor, nil
	}
	p, err := o.Home.Trust().Narrow(o.Floor, a.Policy, a.Allow)
	var asked *sandbox.NarrowError
	switch {
	case errors.As(err, &asked) && asked.Beyond:
		return nil, say("beyond the operator's floor: %w", asked.Err)
	case errors.As(err, &asked):
		return nil, wrong("%w", asked.Err)
	}
	return p, err
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
