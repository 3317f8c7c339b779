package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// countingDialer opens nothing.
type countingDialer struct{ dialled []string }

func (d *countingDialer) DialContext(_ context.Context, _, addr string) (net.Conn, error) {
	d.dialled = append(d.dialled, addr)
	return nil, errors.New("opens nothing")
}

// TestI16_RedialsFollowTheRulesInForce: the proxy reopens a connection of its own after a reload that
// denies the name it is for. In the twin the reload allows it.
func TestI16_RedialsFollowTheRulesInForce(t *testing.T) {
	t.Parallel()
	name, dst := hostname.MustParse("web.example.com"), netip.MustParseAddrPort("93.184.215.14:443")
	parse := func(allowed string) *policies.Policy {
		p, err := policies.Parse("test.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\""+allowed+"\"]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for allowed, want := range map[string]int{"web.example.com": 2, "other.example.com": 0} {
		d := &countingDialer{}
		g, err := New(Config{Sandbox: "test", Policy: parse("web.example.com"), Dialer: d})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Close() })
		if err := g.Reload(parse(allowed)); err != nil {
			t.Fatal(err)
		}
		_, plain := g.dialInspected(t.Context(), name, dst)
		_, tls := g.dialInspectedTLS(t.Context(), name, dst)
		if len(d.dialled) != want || errors.Is(plain, errDenied) != (want == 0) || errors.Is(tls, errDenied) != (want == 0) {
			t.Errorf("%s is allowed: dialled %v, %v, %v", allowed, d.dialled, plain, tls)
		}
	}
}
