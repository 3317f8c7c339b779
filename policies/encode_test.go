package policies

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// plain returns p without what a file doesn't say: where it was read from.
func plain(p *Policy) *Policy {
	q := *p
	q.File, q.Path, q.Include, q.Included, q.Outside = "", "", nil, nil, nil
	q.Egress.Allow, q.Egress.Deny = plainRules(p.Egress.Allow), plainRules(p.Egress.Deny)
	q.Hosts, q.Secrets, q.TLS.ExtraCA, q.Ingress.Allow = nil, nil, nil, nil
	for _, r := range p.Ingress.Allow {
		r.Pos = Position{}
		q.Ingress.Allow = append(q.Ingress.Allow, r)
	}
	for _, h := range p.Hosts {
		h.Pos = Position{}
		q.Hosts = append(q.Hosts, h)
	}
	for _, s := range p.Secrets {
		s.Pos = Position{}
		q.Secrets = append(q.Secrets, s)
	}
	for _, c := range p.TLS.ExtraCA {
		c.Pos = Position{}
		q.TLS.ExtraCA = append(q.TLS.ExtraCA, c)
	}
	return &q
}

func plainRules(rules []Rule) []Rule {
	var out []Rule
	for _, r := range rules {
		r.Pos = Position{}
		out = append(out, r)
	}
	return out
}

// again parses the encoded form of p. The name has no directory, so that relative
// paths, resolved once already, stay as they are.
func again(t *testing.T, p *Policy) *Policy {
	t.Helper()
	text := Encode(p)
	q, err := Parse("again.toml", text, nil)
	if err != nil {
		t.Fatalf("the encoded policy is refused: %v\n%s", err, text)
	}
	if !reflect.DeepEqual(plain(p), plain(q)) {
		t.Fatalf("the encoded policy means something else\n got %+v\nwant %+v\n%s", plain(q), plain(p), text)
	}
	return q
}

func TestEncodedPoliciesParseToTheSame(t *testing.T) {
	t.Parallel()
	p, err := Load("testdata/full.toml")
	if err != nil {
		t.Fatal(err)
	}
	again(t, p)
	again(t, Default())
	for _, name := range Presets() {
		p, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		again(t, p)
	}
}

func TestEncodeShowsTheFloorInComments(t *testing.T) {
	t.Parallel()
	floor := parse(t, "[[egress.allow]]\nname = \"floor rule\"\nhosts = [\"a.example\"]\n")
	p, err := Tighten(floor, Default())
	if err != nil {
		t.Fatal(err)
	}
	text := string(Encode(p))
	if !strings.Contains(text, "# name = \"floor rule\"") {
		t.Errorf("no floor in\n%s", text)
	}
	q, err := Parse("x.toml", []byte(text), nil)
	if err != nil || len(q.Egress.Allow) != 0 || q.Floor != nil {
		t.Errorf("the floor became rules: %+v, %v", q, err)
	}
}

func FuzzPolicy(f *testing.F) {
	for _, pattern := range []string{"testdata/*.toml", "testdata/errors/*.toml", "testdata/include/*.toml", "presets/*.toml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := readFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz.toml", data, nil)
		if err != nil {
			if p != nil || err.Error() == "" {
				t.Fatalf("%v beside %q", p, err)
			}
			return
		}
		if err := validate(p); err != nil {
			t.Fatalf("what parses isn't valid: %v\n%s", err, data)
		}
		again(t, p)
		if _, err := Tighten(Default(), p); err == nil && len(p.Hosts) > 0 {
			t.Fatal("a floor that maps nothing let a mapping through")
		}
	})
}
