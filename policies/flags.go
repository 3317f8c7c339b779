package policies

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// Flags are the parts of a policy that a command line writes without a file. Each means what it would mean in one.
type Flags struct {
	// Allow and Deny are rules (ParseAllowFlag); a deny rule without a port or a protocol is of all of them.
	Allow, Deny []string
	// Secrets are NAME=SOURCE@HOST[:PORT][,in=PLACE]..., of [secrets]. A host that no rule allows gets one, https to
	// its port; without a place the value may stand in the header Authorization.
	Secrets []string
	// Hosts are NAME=TARGET, of [hosts].
	Hosts []string
	// Presets are names of include.
	Presets []string
}

// Given reports whether there is any.
func (fl Flags) Given() bool {
	return len(fl.Allow)+len(fl.Deny)+len(fl.Secrets)+len(fl.Hosts)+len(fl.Presets) > 0
}

// AddFlags adds the meaning of flags to p. What is an error in a file is one between these too, and between these and
// the file's. Rules of p that a deny flag covers are taken out: they could never match. The error is an Error or an
// ErrorList.
func AddFlags(p *Policy, flags Flags) error {
	if !flags.Given() {
		return nil
	}
	own := *p // nothing of p's is changed before all is sound
	if err := addPresets(&own, flags.Presets); err != nil {
		return err
	}
	deny, err := flagRules(flags.Deny, ParseDenyFlag)
	if err != nil {
		return err
	}
	own.Egress.Allow = slices.DeleteFunc(slices.Clone(own.Egress.Allow), func(a Rule) bool {
		return slices.ContainsFunc(deny, func(d Rule) bool { return covers(d, a) })
	})
	allow, err := flagRules(flags.Allow, ParseAllowFlag)
	if err != nil {
		return err
	}
	own.Egress.Allow, own.Egress.Deny = slices.Concat(own.Egress.Allow, allow), slices.Concat(own.Egress.Deny, deny)
	if err := addHosts(&own, flags.Hosts); err != nil {
		return err
	}
	if err := addSecrets(&own, flags.Secrets); err != nil {
		return err
	}
	// For the checks they count as p's own file's; in p they have no position, which shows that the user wrote them.
	placed, f := own, &faults{file: p.File}
	placed.Egress.Allow = slices.Clone(own.Egress.Allow)
	placed.Egress.Deny = slices.Clone(own.Egress.Deny)
	placed.Secrets = slices.Clone(own.Secrets)
	for _, rules := range [][]Rule{placed.Egress.Allow, placed.Egress.Deny} {
		for i := range rules {
			rules[i].Pos = placeOr(rules[i].Pos, p.File)
		}
	}
	for i := range placed.Secrets {
		placed.Secrets[i].Pos = placeOr(placed.Secrets[i].Pos, p.File)
	}
	f.checkNames(&placed)
	f.checkTogether(&placed)
	*p = own
	return f.err()
}

func placeOr(pos Position, file string) Position {
	if pos == (Position{}) {
		pos.File = file
	}
	return pos
}

// flagRules reads rules, each once.
func flagRules(flags []string, parse func(string) (Rule, error)) (rules []Rule, err error) {
	for _, flag := range flags {
		r, err := parse(flag)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rules, func(have Rule) bool { return have.Name == r.Name }) {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// addPresets merges presets as a file does that includes them; what p has of them already is left out.
func addPresets(p *Policy, names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if _, err := presetSource(name); err != nil {
			return Error{Key: fmt.Sprintf("--preset %q", name), Message: err.Error()}
		}
	}
	w := &writer{}
	w.line("version = %d", currentVersion)
	w.key("include", names)
	l := &loader{done: map[string]bool{}, faults: &faults{file: "--preset"}}
	u := l.file("--preset", []byte(w.String()), nil)
	q := l.merge(u)
	if err := l.err(); err != nil {
		return err
	}
	there := func(have []Rule) func(Rule) bool {
		return func(r Rule) bool {
			return slices.ContainsFunc(have, func(h Rule) bool { return h.Pos == r.Pos && h.Name == r.Name })
		}
	}
	p.Egress.Allow = slices.Concat(p.Egress.Allow, slices.DeleteFunc(q.Egress.Allow, there(p.Egress.Allow)))
	p.Egress.Deny = slices.Concat(p.Egress.Deny, slices.DeleteFunc(q.Egress.Deny, there(p.Egress.Deny)))
	if _, set := u.set["egress.default"]; set {
		p.Egress.Default = q.Egress.Default
	}
	p.Include = slices.Concat(p.Include, names)
	return nil
}

// addHosts reads NAME=TARGET.
func addHosts(p *Policy, flags []string) error {
	p.Hosts = slices.Clone(p.Hosts)
	for _, flag := range flags {
		name, target, ok := strings.Cut(flag, "=")
		if !ok {
			return Error{Key: fmt.Sprintf("--add-host %q", flag), Message: "it has no \"=\"", Remedy: "write NAME=TARGET, such as db.internal=127.0.0.1:5432"}
		}
		m := HostMapping{}
		var err, targetErr error
		m.Name, err = hostname.Parse(name)
		m.Target, targetErr = parseTarget(target)
		if err := errors.Join(err, targetErr); err != nil {
			return Error{Key: fmt.Sprintf("--add-host %q", flag), Message: err.Error()}
		}
		p.Hosts = append(p.Hosts, m)
	}
	return nil
}

// secretIn separates the place of a --secret from its host.
const secretIn = ",in="

// addSecrets reads NAME=SOURCE@HOST[:PORT][,in=PLACE].... A secret that is given again gets one more host.
func addSecrets(p *Policy, flags []string) error {
	var added []Secret
	for _, flag := range flags {
		s, err := parseSecretFlag(flag)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(added, func(have Secret) bool {
			return have.Name == s.Name && sameSource(have.From, s.From) && slices.Equal(have.In, s.In)
		})
		switch {
		case i < 0:
			added = append(added, s)
		case !slices.Contains(added[i].Hosts, s.Hosts[0]):
			added[i].Hosts = append(added[i].Hosts, s.Hosts[0])
		}
		h := s.Hosts[0]
		if reach, _ := secretReach(p, mappedFreely(p), h); !reach {
			p.Egress.Allow = slices.Concat(p.Egress.Allow, []Rule{{
				Name: "--secret " + s.Name + "@" + h.String(), Hosts: []hostname.Pattern{h.Pattern}, Ports: []PortRange{{h.port(), h.port()}}, Protocol: HTTPS,
			}})
		}
	}
	p.Secrets = slices.Concat(p.Secrets, added)
	return nil
}

// parseSecretFlag reads one --secret. No error quotes what stands for the source: that may be the value itself.
func parseSecretFlag(flag string) (Secret, error) {
	const form = "write NAME=SOURCE@HOST[:PORT][,in=PLACE], such as GITHUB_TOKEN=env:GITHUB_TOKEN@api.github.com"
	name, rest, named := strings.Cut(flag, "=")
	if !named {
		return Secret{}, Error{Key: "--secret", Message: "it has no \"=\"", Remedy: form}
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return Secret{}, Error{Key: "--secret " + name, Message: "it names no host after an \"@\"", Remedy: form}
	}
	parts := strings.Split(rest[at+1:], secretIn)
	doc := fileSecret{From: rest[:at], Hosts: parts[:1], In: parts[1:]}
	if len(doc.In) == 0 {
		doc.In = []string{"header:Authorization"}
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		dir = "" // without a working directory, paths stay as they are
	}
	c := &converter{faults: &faults{}, set: map[string]Position{}, dir: dir}
	s := c.secret(name, doc)
	c.checkSecret("", s)
	if len(c.list) > 0 {
		return Secret{}, Error{Key: "--secret " + name, Message: c.list[0].Message, Remedy: c.list[0].Remedy}
	}
	return s, nil
}
