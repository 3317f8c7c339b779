package policies

import (
	"errors"
	"io/fs"
	"testing"
)

// TestDeniedNamesLeaveIncludes: a deny rule takes rules and hosts of secrets out of what the file includes, and what is
// left can be written as one file. In one file the pair is an error.
func TestDeniedNamesLeaveIncludes(t *testing.T) {
	t.Parallel()
	const included = `version = 1
[[egress.allow]]
name = "one"
hosts = ["a.example", "b.example"]
[[egress.allow]]
name = "two"
hosts = ["c.example"]
[secrets.S]
from = "env:S"
hosts = ["a.example", "c.example"]
in = ["basic"]
[secrets.T]
from = "env:T"
hosts = ["c.example"]
in = ["basic"]
`
	open := func(path string) ([]byte, error) {
		if path == "inc.toml" {
			return []byte(included), nil
		}
		return nil, fs.ErrNotExist
	}
	for name, c := range map[string]struct {
		deny                  string
		rules, hosts, secrets int
	}{
		"nothing":   {"", 2, 3, 2},
		"a part":    {"hosts = [\"a.example\"]", 2, 2, 2},
		"a rule":    {"hosts = [\"c.example\"]", 1, 1, 1},
		"all":       {"hosts = [\"*.example\"]", 0, 0, 0},
		"one path":  {"hosts = [\"c.example\"]\npaths = [\"/x\"]", 2, 3, 2},
		"elsewhere": {"hosts = [\"c.example\"]\nports = [8443]", 2, 3, 2},
	} {
		text := "version = 1\ninclude = [\"inc.toml\"]\n"
		if c.deny != "" {
			text += "[[egress.deny]]\n" + c.deny + "\n"
		}
		p, err := Parse("p.toml", []byte(text), open)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		hosts := 0
		for _, s := range p.Secrets {
			hosts += len(s.Hosts)
		}
		if len(p.Egress.Allow) != c.rules || hosts != c.hosts || len(p.Secrets) != c.secrets {
			t.Errorf("%s: %d rules, %d hosts of %d secrets", name, len(p.Egress.Allow), hosts, len(p.Secrets))
		}
		if again, err := Parse("again.toml", Encode(p), nil); err != nil || len(Compare(p, again)) > 0 {
			t.Errorf("%s: as one file: %v", name, err)
		}
	}
	var faults ErrorList
	if _, err := Parse("p.toml", []byte(included+"[[egress.deny]]\nhosts = [\"c.example\"]\n"), open); !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("in one file: %v", err)
	}
}
