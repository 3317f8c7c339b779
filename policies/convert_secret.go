package policies

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

func (c *converter) secrets(p *Policy, secrets map[string]fileSecret) {
	for name, f := range secrets {
		p.Secrets = append(p.Secrets, c.secret(name, f))
	}
	sortByPlace(p.Secrets, func(s Secret) Position { return s.Pos })
	for _, s := range p.Secrets {
		c.checkSecret(joinKey("secrets", s.Name), s)
	}
}

func (c *converter) secret(name string, f fileSecret) Secret {
	key := joinKey("secrets", name)
	s := Secret{
		Name:        name,
		From:        c.source(key+".from", f.From),
		Hosts:       c.secretHosts(key+".hosts", f.Hosts),
		OnViolation: OnViolation(c.enum(key+".on_violation", f.OnViolation, violations)),
		Services:    f.Services,
		Regions:     f.Regions,
		Placeholder: DefaultPlaceholder,
		Pos:         c.places.of(key),
	}
	delete(c.set, key+".on_violation") // merged with its secret
	if f.TTL != nil {
		c.duration(key+".ttl", f.TTL, &s.From.TTL)
		delete(c.set, key+".ttl")
	}
	s.From.RefreshOn401 = f.RefreshOn401
	if f.Kind != nil {
		if s.Kind = *f.Kind; s.Kind == "" {
			c.add(key+".kind", "it is empty", "leave it out, or write \""+SigV4+"\"")
		}
		s.Placeholder = defaultSigV4Placeholder
	}
	if f.Placeholder != nil {
		s.Placeholder = *f.Placeholder
	}
	for i, text := range f.In {
		place, err := parsePlace(text)
		if err != nil {
			c.addErr(fmt.Sprintf("%s.in[%d]", key, i), err)
			continue
		}
		s.In = append(s.In, place)
	}
	for _, u := range f.Upgrades {
		s.Upgrades = append(s.Upgrades, strings.ToLower(u))
	}
	if f.Mint != nil {
		s.Mint = &Mint{Fields: f.Mint.Fields}
		if f.Mint.Path != nil {
			s.Mint.Path = *f.Mint.Path
		}
	}
	return s
}

// secretHosts reads names that may carry a port.
func (c *converter) secretHosts(key string, list []string) []SecretHost {
	var out []SecretHost
	for i, s := range list {
		h, err := ParseSecretHost(s)
		if err != nil {
			element := fmt.Sprintf("%s[%d]", key, i)
			if errors.Is(err, errPort) {
				c.addErr(element, err)
			} else {
				c.hostFault(element, s, err)
			}
			continue
		}
		out = append(out, h)
	}
	return out
}

// source reads "env:NAME", "file:PATH", "command:PROG ARG…" or a list.
func (c *converter) source(key string, v any) Source {
	var text string
	var argv []string
	switch v := v.(type) {
	case nil:
		return Source{} // checkSecret says that it is missing
	case string:
		text = v
	case []any:
		for i, a := range v {
			s, ok := a.(string)
			if !ok {
				c.add(fmt.Sprintf("%s[%d]", key, i), "it is "+typeName(a)+", not a string", "")
				return Source{Kind: FromCommand, Argv: []string{"-"}}
			}
			argv = append(argv, s)
		}
		if len(argv) > 0 {
			text = argv[0]
		}
		if !strings.HasPrefix(text, "command:") {
			c.add(key, "a list is for commands", "write [\"command:PROGRAM\", \"ARGUMENT\"]")
			return Source{Kind: FromCommand, Argv: []string{"-"}}
		}
	default:
		c.add(key, "it is "+typeName(v)+", not a string", "")
	}
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "env":
		return Source{Kind: FromEnv, Value: rest}
	case "file":
		if rest != "" {
			rest = c.relative(rest)
		}
		return Source{Kind: FromFile, Value: rest}
	case "command":
		if argv == nil {
			argv = strings.Fields(rest)
		} else {
			argv[0] = rest
		}
		if len(argv) > 0 && strings.Contains(argv[0], "/") {
			argv[0] = c.program(argv[0])
		}
		return Source{Kind: FromCommand, Argv: argv}
	}
	// The text isn't shown: it may well be the secret itself.
	c.add(key, "it says no place that the value is read from", "write \"env:NAME\", \"file:PATH\" or \"command:PROGRAM ARG\"; the value itself doesn't belong in a policy")
	return Source{Kind: FromEnv, Value: "UNKNOWN"}
}

// program resolves the path of a program. Without a slash it would be looked up
// in PATH.
func (c *converter) program(path string) string {
	if path = c.relative(path); !strings.Contains(path, "/") {
		return "./" + path
	}
	return path
}

// parsePlace reads "header:NAME", "basic", "query:NAME", "body" or "websocket".
func parsePlace(s string) (Place, error) {
	kind, name, named := strings.Cut(s, ":")
	switch {
	case kind == "header" && named && name != "" && !strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		return Place{InHeader, textproto.CanonicalMIMEHeaderKey(name)}, nil
	case kind == "query" && named && name != "" && !strings.ContainsFunc(name, isControl):
		return Place{InQuery, name}, nil
	case s == "basic":
		return Place{Kind: InBasic}, nil
	case s == "body":
		return Place{Kind: InBody}, nil
	case s == "websocket":
		return Place{Kind: InWebSocket}, nil
	}
	return Place{}, fmt.Errorf("%q is not a place in a request; the places are \"header:NAME\", \"basic\", \"query:NAME\", \"body\" and \"websocket\"", s)
}
