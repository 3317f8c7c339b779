package policies

import "testing"

// TestI15_SSHNeedsEachFloor asks under none, one and two floors.
func TestI15_SSHNeedsEachFloor(t *testing.T) {
	t.Parallel()
	agent, both := "[ssh]\nagent_forwarding = true\n", "[ssh]\nagent_forwarding = true\nreverse_forwarding = true\n"
	under := func(own string, floors ...string) *Policy {
		p := parse(t, own)
		for _, f := range floors {
			var err error
			if p, err = Tighten(parse(t, f), p); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	for i, c := range []struct {
		policy           *Policy
		agent, reverse   bool
		byFloor, revByIt bool
	}{
		{under(""), false, false, false, false},
		{under(agent), true, false, false, false},
		{under(both, both), true, true, false, false},
		{under(both, agent), true, false, false, true},
		{under(both, both, agent), true, false, false, true},
		{under(both, agent, ""), false, false, true, true},
		{under("", both), false, false, false, false},
		{under("[ssh]\nagent_forwarding = false\n", both), false, false, false, false},
	} {
		for _, k := range []struct {
			allowed   func(SSH) bool
			ok, floor bool
		}{
			{func(s SSH) bool { return s.AgentForwarding }, c.agent, c.byFloor},
			{func(s SSH) bool { return s.ReverseForwarding }, c.reverse, c.revByIt},
			{func(s SSH) bool { return s.X11Forwarding }, false, false},
		} {
			if ok, floor := c.policy.AllowsSSH(k.allowed); ok != k.ok || floor != k.floor {
				t.Errorf("%d: %t by the floor %t, want %t, %t\n%s", i, ok, floor, k.ok, k.floor, Encode(c.policy))
			}
		}
	}
}
