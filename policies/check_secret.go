package policies

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/msb-project/msb/hostname"
)

// reservedVariables are variables that a secret's name may not be, since the
// placeholder takes that variable's place in the guest.
var reservedVariables = []string{"PATH", "HOME", "USER", "SHELL", "TERM", "PWD", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// checkSecret checks what one secret says on its own.
func (f *faults) checkSecret(key string, s Secret) {
	if !isVariable(s.Name) || slices.Contains(reservedVariables, s.Name) || strings.HasPrefix(s.Name, "LD_") {
		f.add(key, fmt.Sprintf("%q can't be the variable that holds the placeholder in the guest", s.Name), "name it with letters, digits and underscores, such as API_TOKEN")
	}
	f.checkSource(key, s.From)
	if len(s.Hosts) == 0 {
		f.lacks(key, "hosts", "it has no hosts", "name the hosts that the value may go to")
	}
	for i, h := range s.Hosts {
		f.checkSecretHost(fmt.Sprintf("%s.hosts[%d]", key, i), h.Pattern)
	}
	if _, err := ParseShape(s.Placeholder); err != nil {
		f.addErr(key+".placeholder", err)
	}
	for i, u := range s.Upgrades {
		f.checkUpgrade(fmt.Sprintf("%s.upgrades[%d]", key, i), u)
	}
	f.checkKind(key, s)
	f.checkMint(key, s.Mint)
}

func (f *faults) checkSource(key string, s Source) {
	const remedy = "write \"env:NAME\", \"file:PATH\" or \"command:PROGRAM ARG\""
	switch s.Kind {
	case FromNone:
		f.lacks(key, "from", "it doesn't say where the value comes from", "add from = \"env:NAME\", \"file:PATH\" or \"command:PROGRAM ARG\"")
	case FromEnv:
		if !isVariable(s.Value) {
			f.add(key+".from", "env: is not followed by the name of a variable", remedy)
		}
	case FromFile:
		if s.Value == "" {
			f.add(key+".from", "file: is not followed by a path", remedy)
		}
	case FromCommand:
		if len(s.Argv) == 0 || s.Argv[0] == "" {
			f.add(key+".from", "command: is not followed by a program", remedy)
		}
	}
	if s.TTL != 0 && s.Kind != FromCommand {
		f.add(key+".ttl", "only the answer of a command is kept for a time", "leave ttl out: variables and files are read again when they change")
	}
	if s.RefreshOn401 && s.Kind != FromCommand {
		f.add(key+".refresh_on_401", "only a command is run again after a 401", "leave refresh_on_401 out, or read the value from \"command:PROGRAM ARG\"")
	}
}

// checkSecretHost refuses patterns under which anyone can register names:
// a secret for "*.github.io" would go to anybody's page.
func (f *faults) checkSecretHost(key string, h hostname.Pattern) {
	if !h.Wildcard() {
		return
	}
	if h.Any() {
		f.add(key, "a secret for every host is no secret", "name the hosts")
		return
	}
	if suffix, _ := publicsuffix.PublicSuffix(h.Base().String()); suffix == h.Base().String() {
		f.add(key, fmt.Sprintf("anybody can get a name under %q, and the value would go there", h.Base()), "name the hosts, or a domain of your own below it")
	}
}

// checkUpgrade refuses what is no protocol (RFC 9110, section 7.8), and those that
// need no line or are never passed on.
func (f *faults) checkUpgrade(key, protocol string) {
	name, version, versioned := strings.Cut(protocol, "/")
	bad := func(s string) bool {
		return s == "" || strings.ContainsFunc(s, func(c rune) bool { return !isToken(c) })
	}
	switch {
	case bad(name) || versioned && bad(version):
		f.add(key, fmt.Sprintf("%q is not a protocol of an Upgrade field", protocol), "write it as clients send it, such as \"spdy/3.1\"")
	case name == "websocket":
		f.add(key, "WebSockets are looked into, and need no line here", "take it out; in = [\"websocket\"] lets the value into messages")
	case strings.HasPrefix(name, "h2") || strings.HasPrefix(name, "http") || strings.HasPrefix(name, "tls"):
		f.add(key, fmt.Sprintf("%q inside a connection would be a way around inspection and is never passed on", protocol), "take it out")
	}
}

// checkKind checks places, services and regions.
func (f *faults) checkKind(key string, s Secret) {
	switch s.Kind {
	case "":
		if len(s.In) == 0 {
			f.lacks(key, "in", "it doesn't say where in a request the value may stand", "add in = [\"header:Authorization\"]; the places are header:NAME, basic, query:NAME, body and websocket")
		}
		if len(s.Services)+len(s.Regions) > 0 {
			f.add(key, "services and regions are for signed requests", "add kind = \""+SigV4+"\", or leave them out")
		}
	case SigV4:
		if len(s.In) > 0 {
			f.add(key+".in", "a signed request never carries the value", "leave in out")
		}
		if len(s.Services) == 0 || len(s.Regions) == 0 {
			f.lacks(key, "services regions", "it doesn't say what may be signed for", "add services = [\"s3\"] and regions = [\"eu-central-1\"]")
		}
		if s.Mint != nil {
			f.add(key+".mint", "a signed request mints no token", "leave mint out")
		}
	default:
		f.add(key+".kind", fmt.Sprintf("unknown kind %q", s.Kind), "leave it out, or write \""+SigV4+"\"")
	}
}

func (f *faults) checkMint(key string, m *Mint) {
	if m == nil {
		return
	}
	if !strings.HasPrefix(m.Path, "/") || path.Clean(m.Path) != m.Path {
		f.add(key+".mint", fmt.Sprintf("%q is not the path of a request", m.Path), "write path = \"/oauth/token\"")
	}
	if len(m.Fields) == 0 || slices.Contains(m.Fields, "") {
		f.add(key+".mint", "it names no fields", "write fields = [\"access_token\"]")
	}
}

// isVariable reports whether s can name an environment variable (POSIX, 8.1).
func isVariable(s string) bool {
	for i, c := range s {
		if c != '_' && !isAlnum(c) || i == 0 && c >= '0' && c <= '9' {
			return false
		}
	}
	return s != ""
}
