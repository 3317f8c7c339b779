package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// inOrder is the peer that reads rules one after the other.
const inOrder = "list in order"

// rules measures judgements under 10 to 100,000 rules.
func rules(rounds int, set *figures.Set) error {
	for _, n := range []int{10, 100, 1000, 10_000, 100_000} {
		p := manyRules(n)
		e, err := egress.New(p)
		if err != nil {
			return err
		}
		// Flows that the last rules are about, as far as a list in order is concerned the usual ones.
		last := p.Egress.Allow[n-2:]
		byName := egress.Flow{Proto: egress.TCP, Dst: netip.MustParseAddrPort("140.82.112.5:443"),
			Pinned: []hostname.Name{hostname.MustParse(last[0].Hosts[0].String())}}
		byAddr := egress.Flow{Proto: egress.TCP, Dst: netip.AddrPortFrom(last[1].CIDRs[0].Addr(), 443)}
		for range rounds {
			for _, side := range []struct {
				name   string
				decide func(*egress.Flow) bool
			}{
				{figures.OfMsb, func(f *egress.Flow) bool { return e.Decide(f).Action != egress.Deny }},
				{inOrder, func(f *egress.Flow) bool { return first(p.Egress.Allow, f) }},
			} {
				for kind, f := range map[string]*egress.Flow{"name": &byName, "address": &byAddr} {
					if !side.decide(f) {
						return fmt.Errorf("%s: the flow by %s is denied under %d rules", side.name, kind, n)
					}
					r := testing.Benchmark(func(b *testing.B) {
						for b.Loop() {
							side.decide(f)
						}
					})
					set.Add(ruleSeries(kind, n), side.name, figures.Seconds, r.T.Seconds()/float64(r.N))
				}
			}
		}
		fmt.Printf("%6d rules, ns: by name %s, a list %s; by address %s, a list %s\n", n,
			nanos(set, "name", n, figures.OfMsb), nanos(set, "name", n, inOrder), nanos(set, "address", n, figures.OfMsb), nanos(set, "address", n, inOrder))
	}
	return nil
}

func ruleSeries(kind string, n int) string { return fmt.Sprintf("Growth/rules by %s/n=%d", kind, n) }

func nanos(set *figures.Set, kind string, n int, side string) string {
	var v []float64
	for _, s := range set.Values(ruleSeries(kind, n), side, figures.Seconds) {
		v = append(v, s*1e9)
	}
	return figures.Text("%.0f", v)
}

// manyRules is a policy of n rules, half by name, half by address.
func manyRules(n int) *policies.Policy {
	p := policies.Default()
	https := []policies.PortRange{{First: 443, Last: 443}}
	for i := range n {
		r := policies.Rule{Name: fmt.Sprintf("rule %d", i), Ports: https, Protocol: policies.HTTPS}
		if i%2 == 0 {
			r.Hosts = []hostname.Pattern{hostname.MustParsePattern(fmt.Sprintf("h%d.zone%d.com", i, i%97))}
		} else {
			r.Protocol = policies.TCP
			r.CIDRs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(20 + i>>16), byte(i >> 8), byte(i)}), 32)}
		}
		p.Egress.Allow = append(p.Egress.Allow, r)
	}
	return p
}

// first reads the rules in order until one fits.
func first(list []policies.Rule, f *egress.Flow) bool {
	for i := range list {
		r := &list[i]
		if !slices.ContainsFunc(r.Ports, func(p policies.PortRange) bool { return p.First <= f.Dst.Port() && f.Dst.Port() <= p.Last }) {
			continue
		}
		if slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(f.Dst.Addr()) }) {
			return true
		}
		for _, name := range f.Pinned {
			if slices.ContainsFunc(r.Hosts, func(h hostname.Pattern) bool { return h.Match(name) }) {
				return true
			}
		}
	}
	return false
}
