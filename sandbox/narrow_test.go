package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestI15_NarrowHasBounds, and says of what is refused whether it goes beyond the policy above.
func TestI15_NarrowHasBounds(t *testing.T) {
	t.Parallel()
	trust := newHome(t).Trust()
	const private = "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [22]\nprivate = true\n"
	above := parsePolicy(t, "[hosts]\n\"db.internal\" = \"127.0.0.1:5432\"\n[[egress.allow]]\nhosts = [\"a.example\", \"db.internal\"]\n"+private)
	text := func(rest string) *string { rest = "version = 1\n" + rest; return &rest }
	long := func(n int) *string {
		const own = "[[egress.allow]]\nhosts = [\"a.example\"]\n#"
		return text(own + strings.Repeat("x", n-len("version = 1\n"+own)))
	}
	empty := " \n"
	for what, c := range map[string]struct {
		text   *string
		allow  []string
		beyond bool
		says   string // "" for what is taken
	}{
		"the most text":     {long(MaxNarrowPolicy), nil, false, ""},
		"more text":         {long(MaxNarrowPolicy + 1), nil, false, "a policy of 65537 bytes"},
		"empty text":        {&empty, nil, false, "policy is empty"},
		"the most rules":    {nil, slices.Repeat([]string{"a.example"}, MaxNarrowAllow), false, ""},
		"more rules":        {nil, slices.Repeat([]string{"a.example"}, MaxNarrowAllow+1), false, "257 allow rules"},
		"the longest rule":  {nil, []string{strings.Repeat("x", MaxNarrowRule)}, false, "allow: "},
		"a longer rule":     {nil, []string{strings.Repeat("x", MaxNarrowRule+1)}, false, "a rule of more than 1024 bytes"},
		"another target":    {text("[hosts]\n\"x.internal\" = \"builtin:echo\"\n"), nil, true, "x.internal"},
		"a private network": {text(private), nil, false, "takes nothing from the host, but this takes"},
		"a mapped name":     {nil, []string{"db.internal"}, false, ""},
	} {
		p, err := trust.Narrow(above, c.text, c.allow)
		var fault *NarrowError
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %.200v", what, err)
			} else if mapped := len(p.Hosts) == 1; mapped != (what == "a mapped name") {
				t.Errorf("%s: its hosts are %v", what, p.Hosts)
			}
			continue
		}
		if !errors.As(err, &fault) || fault.Beyond != c.beyond || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.200v, beyond the policy above: %t; want %q, %t", what, err, fault != nil && fault.Beyond, c.says, c.beyond)
		}
		if tooLong := strings.Contains(what, "longest") && strings.Contains(err.Error(), "more than"); tooLong {
			t.Errorf("%s: %.200v", what, err)
		}
	}
}
