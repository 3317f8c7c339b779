package policies

import (
	"strings"
	"testing"
)

func TestFlagsMeanWhatFilesMean(t *testing.T) {
	t.Parallel()
	const token = "[secrets.TOKEN]\nfrom = \"env:TOKEN\"\n"
	for _, tt := range []struct {
		name  string
		base  string
		flags Flags
		file  string
	}{
		{"a rule", "", Flags{Allow: []string{"a.example:8443/https", "a.example:8443/https"}},
			"[[egress.allow]]\nname = \"--allow a.example:8443/https\"\nhosts = [\"a.example\"]\nports = [8443]\nprotocol = \"https\"\n"},
		{"a deny rule", "", Flags{Deny: []string{"a.example", "192.0.2.0/24:25"}},
			"[[egress.deny]]\nname = \"--deny a.example\"\nhosts = [\"a.example\"]\n[[egress.deny]]\nname = \"--deny 192.0.2.0/24:25\"\ncidrs = [\"192.0.2.0/24\"]\nports = [25]\n"},
		{"a deny rule over one of the file's", "[[egress.allow]]\nhosts = [\"a.example\"]\n", Flags{Deny: []string{"*.example"}},
			"[[egress.deny]]\nname = \"--deny *.example\"\nhosts = [\"*.example\"]\n"},
		{"hosts", "", Flags{Hosts: []string{"db.internal=127.0.0.1:5432"}}, "[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n"},
		{"presets, each once", "include = [\"pypi\"]\n", Flags{Presets: []string{"pypi", "public"}}, "include = [\"pypi\", \"public\"]\n"},
		{"a secret opens its host", "", Flags{Secrets: []string{"TOKEN=env:TOKEN@a.example:8443"}},
			"[[egress.allow]]\nname = \"--secret TOKEN@a.example:8443\"\nhosts = [\"a.example\"]\nports = [8443]\nprotocol = \"https\"\n" + token + "hosts = [\"a.example:8443\"]\nin = [\"header:Authorization\"]\n"},
		{"a secret opens no more than the rule for its host", "[[egress.allow]]\nname = \"r\"\nhosts = [\"a.example\"]\nmethods = [\"GET\"]\n", Flags{Secrets: []string{"TOKEN=env:TOKEN@a.example"}},
			"[[egress.allow]]\nname = \"r\"\nhosts = [\"a.example\"]\nmethods = [\"GET\"]\n" + token + "hosts = [\"a.example\"]\nin = [\"header:Authorization\"]\n"},
		{"a secret of two hosts and places", "[egress]\ndefault = \"public\"\n", Flags{Secrets: []string{"TOKEN=env:TOKEN@a.example,in=basic,in=header:x-key", "TOKEN=env:TOKEN@b.example,in=basic,in=header:x-key"}},
			"[egress]\ndefault = \"public\"\n" + token + "hosts = [\"a.example\", \"b.example\"]\nin = [\"basic\", \"header:X-Key\"]\n"},
		{"the last @ counts", "[egress]\ndefault = \"public\"\n", Flags{Secrets: []string{"TOKEN=command:get me@work@a.example"}},
			"[egress]\ndefault = \"public\"\n[secrets.TOKEN]\nfrom = \"command:get me@work\"\nhosts = [\"a.example\"]\nin = [\"header:Authorization\"]\n"},
	} {
		p, err := Parse("base.toml", []byte("version = 1\n"+tt.base), nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if err := AddFlags(p, tt.flags); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want, err := Parse("want.toml", []byte("version = 1\n"+tt.file), nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		want.Include = p.Include // comments
		if a, b := string(Encode(p)), string(Encode(want)); a != b {
			t.Errorf("%s: the flags mean\n%s\nthe file\n%s", tt.name, a, b)
		}
		if _, err := Parse("again.toml", Encode(p), nil); err != nil {
			t.Errorf("%s: what is printed is no policy: %v", tt.name, err)
		}
	}
}

func TestI8_FlagErrorsShowNoValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags Flags
		say   string
	}{
		{Flags{Secrets: []string{"hunter2"}}, "write NAME=SOURCE@HOST"},
		{Flags{Secrets: []string{"TOKEN=hunter2"}}, "--secret TOKEN: it names no host"},
		{Flags{Secrets: []string{"TOKEN=hunter2@a.example"}}, "env:NAME"},
		{Flags{Secrets: []string{"PATH=env:hunter2@a.example"}}, "such as API_TOKEN"},
		{Flags{Secrets: []string{"T=env:hunter2@a.example,in=cookie"}}, "not a place in a request"},
		{Flags{Secrets: []string{"T=env:hunter2@*"}}, "no secret"},
		{Flags{Secrets: []string{"T=env:hunter2@10.0.0.1"}}, "it is an IP address"},
		{Flags{Secrets: []string{"T=env:A@a.example", "T=env:B@a.example"}}, `another secret called "T"`},
		{Flags{Secrets: []string{"T=env:A@a.example"}, Deny: []string{"a.example"}}, "take"},
		{Flags{Allow: []string{"a.example"}, Deny: []string{"a.example"}}, "can never match"},
		{Flags{Deny: []string{"https://a.example"}}, `--deny "https://a.example": it is a URL`},
		{Flags{Hosts: []string{"db:10.0.0.5"}}, "write NAME=TARGET"},
		{Flags{Hosts: []string{"db.internal=host-gateway"}}, `write "127.0.0.1:5000"`},
		{Flags{Hosts: []string{"db.internal=127.0.0.1:1", "db.internal=127.0.0.1:2"}}, `another host called "db.internal"`},
		{Flags{Presets: []string{"pipy"}}, `did you mean "pypi"?`},
		{Flags{Presets: []string{"public", "offline"}}, "disagree"},
	} {
		err := AddFlags(Default(), tt.flags)
		if err == nil || !strings.Contains(err.Error(), tt.say) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want %q and no value", tt.flags, err, tt.say)
		}
	}
}

func TestI15_FlagsAreHeldToAFloor(t *testing.T) {
	t.Parallel()
	floor, err := Parse("floor.toml", []byte("version = 1\n[[egress.allow]]\nname = \"a\"\nhosts = [\"a.example\"]\n[hosts]\n\"in.example\" = \"127.0.0.1:1\"\n[secrets.T]\nfrom = \"env:T\"\nhosts = [\"a.example\"]\nin = [\"header:Authorization\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flags Flags
		ok    bool
	}{
		{Flags{Secrets: []string{"MINE=env:T@a.example"}, Hosts: []string{"in.example=127.0.0.1:1"}}, true},
		{Flags{Secrets: []string{"MINE=env:OTHER@a.example"}}, false},
		{Flags{Secrets: []string{"MINE=env:T@b.example"}}, false},
		{Flags{Secrets: []string{"MINE=env:T@a.example,in=body"}}, false},
		{Flags{Hosts: []string{"in.example=127.0.0.1:2"}}, false},
	} {
		p := Default()
		if err := AddFlags(p, tt.flags); err != nil {
			t.Fatalf("%+v: %v", tt.flags, err)
		}
		if _, err := Tighten(floor, p); (err == nil) != tt.ok {
			t.Errorf("%+v: %v, want accepted: %t", tt.flags, err, tt.ok)
		}
	}
}
