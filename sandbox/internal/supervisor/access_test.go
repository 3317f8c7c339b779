package supervisor

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/sandbox/internal/journal"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI15_OnceEndsWithItsFirstFlow has grants for once and one for an hour, and what the gateway tells of flows.
func TestI15_OnceEndsWithItsFirstFlow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(time.Hour)
	st := &state.Stored{Requests: []state.Request{
		{ID: "once2222", State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until}, {ID: "hour2222", State: state.RequestApproved, Lifetime: state.ForHour, Until: &until},
		{ID: "twin2222", State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until},
	}}
	s := newSupervisor(&state.Plan{Dir: t.TempDir()}, nil, nil)
	a := &s.access
	must(t, st.Requests[0].MarkUnused(s.plan.Dir))
	must(t, st.Requests[2].MarkUnused(s.plan.Dir))
	must(t, a.use(1, "request once2222")) // before anything was granted
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 1})
	a.begin(st)
	must(t, errors.Join(a.use(2, "request hour2222"), a.use(3, "other")))
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 2})
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 3})
	if used := st.UsedOnce(s.plan.Dir); len(used) != 0 || a.due(now) {
		t.Errorf("%v are used up by others' flows", used)
	}
	// One flow carries requests of both, and another is open beside it.
	must(t, errors.Join(a.use(4, "request once2222"), a.use(4, "request once2222"), a.use(4, "request twin2222"), a.use(5, "request once2222")))
	if used := st.UsedOnce(s.plan.Dir); len(used) != 2 || a.due(now) || len(a.wake) != 0 {
		t.Errorf("%v are used, %t are over", used, a.due(now))
	}
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 4})
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 5})
	if !a.due(now) || len(a.wake) != 1 {
		t.Error("nobody is woken when the flow that used it has ended")
	}
	if err := a.use(6, "request once2222"); !errors.Is(err, errUsed) {
		t.Errorf("behind its end: %v", err)
	}
	over := a.take()
	if slices.Sort(over); !slices.Equal(over, []string{"once2222", "twin2222"}) || a.due(now) {
		t.Errorf("%v are over", over)
	}
	a.saw(&audit.Event{Kind: audit.FlowOpen, Flow: 6, Rule: "request once2222", Action: "allow"})
	a.saw(&audit.Event{Kind: audit.FlowClose, Flow: 6})
	if len(a.used) != 0 || a.due(now) {
		t.Error("it is used once more before its end is in force")
	}
	ended := st.Settle(now, over...)
	if len(ended) != 2 || len(a.used) != 0 {
		t.Errorf("%+v ended, %v is kept", ended, a.used)
	}
	a.again(over, now) // its end could not be written down
	if again := a.take(); len(again) != len(over) || len(a.take()) != 0 {
		t.Errorf("%v are over once more", again)
	}
	a.begin(st)
	if a.watches.Load() || !a.due(until) {
		t.Error("what is left is not followed")
	}
}

// governed is a supervisor without a machine, whose gateway has a guest, and what a person approved for one host.
func governed(t *testing.T, lifetime string) (*supervisor, *gatewaytest.World, string) {
	t.Helper()
	home := t.TempDir()
	p := newPlan(t, home, "box")
	p.NoNet = false
	s := newSupervisor(p, nil, nil)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) {
		c.Audit, c.Use = reloads{c.Audit, s}, s.access.use
	})
	w.Record("api.example.com. 60 IN A 93.184.216.34")
	s.gateway = w.Gateway
	var err error
	s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: p.Audit})
	must(t, err)
	t.Cleanup(func() { _ = s.records.Close(nil) })
	must(t, s.named.open())
	t.Cleanup(func() { _ = s.named.listener.Close(); _ = s.named.dir.Close() })
	st, err := state.ReadStored(p.Dir, "box")
	must(t, err)
	st.Policy = "version = 1\n"
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	s.access.begin(st)
	r := state.NewRequest("api.example.com", 443, nil, "a test", time.Now())
	must(t, s.access.ask(&r))
	must(t, s.access.answer(&state.RequestAnswer{ID: r.ID, Approve: true, Lifetime: lifetime, By: "alice"}))
	return s, w, r.ID
}

// requestState is what became of the one request of a sandbox.
func requestState(t *testing.T, s *supervisor) state.RequestState {
	t.Helper()
	st, err := state.ReadStored(s.plan.Dir, s.plan.Name)
	must(t, err)
	return st.Requests[0].State
}

// accessEnds counts the lines about ends in a sandbox's log, which it closes.
func accessEnds(t *testing.T, s *supervisor) int {
	t.Helper()
	must(t, s.records.Close(nil))
	text, err := os.ReadFile(s.plan.Audit)
	must(t, err)
	n := 0
	for line := range bytes.Lines(text) {
		var e audit.Event
		must(t, json.Unmarshal(line, &e))
		if e.Kind == audit.AccessEnd {
			n++
		}
	}
	return n
}

// TestI13_UsedGrantsStayUsed kills a supervisor while the connection is open that used a grant for once. Its twin is killed
// before anything has used it.
func TestI13_UsedGrantsStayUsed(t *testing.T) {
	t.Parallel()
	for _, uses := range []bool{true, false} {
		s, w, id := governed(t, state.ForOnce)
		unused := make(chan bool, 4)
		w.ServeHTTPS("93.184.216.34:443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			unused <- there(t, state.OnceFile(s.plan.Dir, id))
		}))
		if uses {
			addr := w.Lookup("api.example.com")
			open := func() error {
				c, err := w.Dial(addr, 443)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = c.Close() })
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				_, err = io.WriteString(tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: w.CA.Pool()}), "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
				return err
			}
			must(t, open())
			if <-unused {
				t.Error("its first connection is outside before it is used up")
			}
		}
		if got := requestState(t, s); got != state.RequestApproved {
			t.Fatalf("it is %s while its connection is open", got)
		}
		next := newSupervisor(s.plan, nil, nil) // of this one, nothing is written down
		next.records, next.gateway = s.records, s.gateway
		must(t, next.access.settleOffline())
		want := map[bool]state.RequestState{true: state.RequestEnded, false: state.RequestApproved}[uses]
		if got := requestState(t, s); got != want {
			t.Errorf("used %t: at the next start it is %s, want %s", uses, got, want)
		}
		if n := accessEnds(t, s); (n == 1) != uses || n > 1 {
			t.Errorf("used %t: %d lines of its end", uses, n)
		}
	}
}

// TestI15_NothingFollowsTheFirstConnection connects again before the end of the first connection was written down.
func TestI15_NothingFollowsTheFirstConnection(t *testing.T) {
	t.Parallel()
	s, w, _ := governed(t, state.ForOnce)
	w.ServeHTTPS("93.184.216.34:443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := w.Lookup("api.example.com")
	shake := func() error {
		c, err := w.Dial(addr, 443)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: w.CA.Pool()}).Handshake()
	}
	must(t, shake())
	<-s.access.wake // nobody watches
	if err := shake(); err == nil {
		t.Error("a second connection")
	}
	if n := len(w.Dialled()); n != 1 {
		t.Errorf("%d connections went outside: %v", n, w.Dialled())
	}
	must(t, s.access.change(nil))
	if got := requestState(t, s); got != state.RequestEnded {
		t.Errorf("it is %s", got)
	}
}

// TestI15_OtherChangesKeepNoGrant has the time of a grant pass, and another change of the sandbox's state come first.
func TestI15_OtherChangesKeepNoGrant(t *testing.T) {
	t.Parallel()
	s, w, _ := governed(t, state.ForHour)
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Fatalf("granted: %v", m)
	}
	st, err := state.ReadStored(s.plan.Dir, "box")
	must(t, err)
	past := time.Now().Add(-time.Second)
	st.Requests[0].Until = &past
	must(t, state.WriteJSON(s.plan.Dir, state.StoredFile, st))
	s.access.begin(st)
	must(t, s.named.keepChoices())
	must(t, s.access.change(nil))
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode == dns.RcodeSuccess {
		t.Error("it is in force when its time is over")
	}
	if n := accessEnds(t, s); n != 1 {
		t.Errorf("%d lines of its end", n)
	}
}

// TestStopsTellOfUsedGrants stops a sandbox that has used one for once: its end is in the log before the stop.
func TestStopsTellOfUsedGrants(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "box")
	p.NoNet = false
	st, err := state.ReadStored(p.Dir, "box")
	must(t, err)
	until := time.Now().Add(time.Hour)
	st.Policy, st.Requests = "version = 1\n", []state.Request{
		{ID: "used2222", Host: "api.example.com", Port: 443, State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until},
		{ID: "left2222", Host: "www.example.com", Port: 443, State: state.RequestApproved, Lifetime: state.ForOnce, Until: &until},
	}
	must(t, state.WriteJSON(p.Dir, state.StoredFile, st))
	must(t, errors.Join(st.Requests[0].MarkUnused(p.Dir), st.Requests[1].MarkUnused(p.Dir)))
	s, info := superviseFake(t, &guestVM{}, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	must(t, s.access.use(7, "request used2222"))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
	st, err = state.ReadStored(p.Dir, "box")
	must(t, err)
	if st.Requests[0].State != state.RequestEnded || st.Requests[1].State != state.RequestApproved || !there(t, state.OnceFile(p.Dir, "left2222")) {
		t.Errorf("%+v", st.Requests)
	}
	text, err := os.ReadFile(p.Audit)
	must(t, err)
	end, stop := bytes.Index(text, []byte(audit.AccessEnd)), bytes.Index(text, []byte(audit.SandboxStop))
	if end < 0 || stop < end || bytes.Count(text, []byte(audit.AccessEnd)) != 1 {
		t.Errorf("the log:\n%s", text)
	}
}
