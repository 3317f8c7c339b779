package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
)

func states(st *Stored) string {
	var all []string
	for i := range st.Requests {
		all = append(all, string(st.Requests[i].State))
	}
	return strings.Join(all, " ")
}

func TestRequestsEndInTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := &Stored{Spec: Spec{Policy: "version = 1\n"}}
	var ids []string
	for i, host := range []string{"once.example", "hour.example", "sandbox.example", "denied.example", "late.example", "revoked.example"} {
		r := NewRequest(host, 443, nil, "because", now)
		r.State, r.Lifetime, r.By = RequestApproved, forSandbox, "an agent" // which is not the asker's to say
		if err := st.Ask(&r, now); err != nil {
			t.Fatal(err)
		}
		if got := st.Requests[i]; got.State != RequestPending || got.Lifetime != "" || got.By != "" {
			t.Fatalf("asked: %+v", got)
		}
		ids = append(ids, r.ID)
	}
	if len(st.Granted()) != 0 {
		t.Error("something is granted before any answer")
	}
	for i, life := range []string{ForOnce, ForHour, forSandbox, "", "-", forSandbox} {
		if life == "-" {
			continue
		}
		r, err := st.Answer(&RequestAnswer{ID: ids[i], Approve: life != "", Lifetime: life, By: "alice", Reason: "why not"}, now)
		if err != nil || r.By != "alice" || r.Answered == nil {
			t.Errorf("%s: %+v, %v", life, r, err)
		}
	}
	if _, err := st.Answer(&RequestAnswer{ID: ids[5], By: "alice"}, now); err != nil {
		t.Error(err)
	}
	if got := states(st); got != "approved approved approved denied pending revoked" {
		t.Error(got)
	}
	if rules := st.Granted(); len(rules) != 3 || rules[0].Hosts[0].String() != "once.example" || rules[0].Name != "request "+ids[0] || rules[0].Why != "approved by alice" {
		t.Errorf("%+v", rules)
	}
	for _, again := range []RequestAnswer{
		{ID: ids[3], Approve: true, Lifetime: ForHour}, {ID: ids[3]}, {ID: ids[0], Approve: true, Lifetime: forSandbox}, {ID: ids[5], Approve: true, Lifetime: ForHour},
		{ID: ids[4], Approve: true, Lifetime: "ever"}, {ID: ids[4], Approve: true}, {ID: "nosuchid"}, {ID: ids[4], Reason: strings.Repeat("x", 501)},
	} {
		if _, err := st.Answer(&again, now); !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v", again, err)
		}
	}
	if at := st.NextEnd(); !at.Equal(now.Add(requestWait)) {
		t.Errorf("the next end is at %s", at)
	}
	if ended := st.Settle(now.Add(requestWait-time.Second), ids[0], ids[2][:7]); len(ended) != 1 || ended[0].ID != ids[0] {
		t.Errorf("used: %+v", ended)
	}
	if ended := st.Settle(now.Add(requestWait)); len(ended) != 1 || ended[0].State != RequestExpired {
		t.Errorf("late: %+v", ended)
	}
	if _, err := st.Answer(&RequestAnswer{ID: ids[4], Approve: true, Lifetime: ForHour}, now.Add(requestWait)); err == nil || !strings.Contains(err.Error(), "expired already") {
		t.Errorf("an answer that comes late: %v", err)
	}
	if ended := st.Settle(now.Add(grantHour)); len(ended) != 1 || ended[0].Host != "hour.example" {
		t.Errorf("an hour: %+v", ended)
	}
	if got := states(st); got != "ended ended approved denied expired revoked" || !st.NextEnd().IsZero() {
		t.Errorf("%s, next %s", got, st.NextEnd())
	}
}

func TestI11_RequestsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := &Stored{Spec: Spec{Policy: "version = 1\n[agent]\nmay_request = [\"*.example\"]\n"}}
	ask := func(host, why string) error {
		r := NewRequest(host, 443, nil, why, now)
		return st.Ask(&r, now)
	}
	for what, err := range map[string]error{
		"a long reason": ask("a.example", strings.Repeat("x", maxRequestText+1)), "no UTF-8": ask("a.example", "\xff"), "beyond the floor": ask("a.other", ""),
		"an id of its own": st.Ask(&Request{ID: "../../x", Host: "a.example", Port: 443}, now),
	} {
		if !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range 3 * maxRequests {
		st.Settle(now)
		if err := ask(fmt.Sprintf("h%d.example", i), ""); err != nil {
			t.Fatal(err)
		}
		if i%4 != 0 {
			if _, err := st.Answer(&RequestAnswer{ID: st.Requests[len(st.Requests)-1].ID, By: "x"}, now); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(requestWait / maxPending)
		if len(st.Requests) > maxRequests {
			t.Fatalf("%d are kept", len(st.Requests))
		}
	}
	for range maxPending {
		_ = ask("b.example", "")
	}
	if err := ask("c.example", ""); err == nil || !strings.Contains(err.Error(), "wait for an answer already") {
		t.Errorf("one more than may wait: %v", err)
	}
	for i := range st.Requests { // what is in force is never forgotten
		st.Requests[i].State = RequestApproved
	}
	for len(st.Requests) < maxRequests {
		st.Requests = append(slices.Clone(st.Requests), Request{State: RequestApproved})
	}
	if err := ask("d.example", ""); err == nil || !strings.Contains(err.Error(), "take one back") {
		t.Errorf("one more than may be in force: %v", err)
	}
}

// TestI11_WaitingRequestsAreCounted: as many may wait as the bound says, each with an id of its own.
func TestI11_WaitingRequestsAreCounted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := &Stored{Spec: Spec{Policy: "version = 1\n[agent]\nmay_request = [\"*.example\"]\n"}}
	for i := range maxPending + 1 {
		r := NewRequest("a.example", 443, nil, "", now)
		if err := st.Ask(&r, now); (err == nil) != (i < maxPending) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	for _, a := range []RequestAnswer{{Approve: true, Lifetime: ForOnce}, {}} { // its id stays taken however it was answered
		r := st.Requests[0]
		a.ID = r.ID
		if _, err := st.Answer(&a, now); err != nil {
			t.Fatal(err)
		}
		if err := st.Ask(&r, now); !errors.Is(err, ErrRequest) || len(st.Requests) != maxPending || !strings.Contains(err.Error(), "this id") {
			t.Errorf("the id of one that is %s: %v", st.Requests[0].State, err)
		}
	}
}

// TestI15_UnusedGrantsForOnceEnd after an hour, so that none waits for a connection that nobody expects any more. A grant
// for the sandbox is the twin.
func TestI15_UnusedGrantsForOnceEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for life, ends := range map[string]bool{ForOnce: true, ForHour: true, forSandbox: false} {
		st := &Stored{Spec: Spec{Policy: "version = 1\n"}}
		r := NewRequest("a.example", 443, nil, "", now)
		if err := st.Ask(&r, now); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Answer(&RequestAnswer{ID: r.ID, Approve: true, Lifetime: life}, now); err != nil {
			t.Fatal(err)
		}
		if at := st.NextEnd(); at.Equal(now.Add(grantHour)) != ends {
			t.Errorf("%s: the next end is at %s", life, at)
		}
		if ended := st.Settle(now.Add(grantHour - time.Second)); len(ended) != 0 || len(st.Granted()) != 1 {
			t.Errorf("%s: %+v ended early", life, ended)
		}
		if ended := st.Settle(now.Add(grantHour)); (len(ended) == 1) != ends || (len(st.Granted()) == 0) != ends {
			t.Errorf("%s: after an hour %+v ended", life, ended)
		}
	}
}

// TestI15_UnreadableFloorsLetNobodyAsk: a floor that can't be read lets nobody ask, and puts nothing in force that was
// approved. One that can is the twin.
func TestI15_UnreadableFloorsLetNobodyAsk(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for floor, readable := range map[string]bool{"version = 1\n": true, "version = ": false, "version = 99\n": false, "version = 1\nunknown = 1\n": false} {
		st := &Stored{Spec: Spec{Policy: "version = 1\n", Floor: floor}}
		r := NewRequest("a.example", 443, nil, "", now)
		if err := st.Ask(&r, now); (err == nil) != readable || err != nil && !errors.Is(err, ErrRequest) {
			t.Errorf("%q: asked: %v", floor, err)
		}
		r.State, r.Lifetime = RequestApproved, forSandbox
		st.Requests = []Request{r}
		if rules := st.Granted(); (len(rules) == 1) != readable {
			t.Errorf("%q: in force are %+v", floor, rules)
		}
	}
}

// TestI15_GrantsForOnceAreUsedOnce: the file of one is there from its approval to its use, no other request has one, and what
// is over leaves none.
func TestI15_GrantsForOnceAreUsedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := &Stored{Requests: []Request{
		{ID: "a", State: RequestApproved, Lifetime: ForOnce}, {ID: "b", State: RequestApproved, Lifetime: ForOnce}, {ID: "c", State: RequestApproved, Lifetime: ForHour},
		{ID: "d", State: RequestPending}, {ID: "e", State: RequestRevoked, Lifetime: ForOnce},
	}}
	there := func() string {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		return strings.Join(names, " ")
	}
	for i := range st.Requests {
		if err := st.Requests[i].MarkUnused(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := there(); got != "once-a once-b" || len(st.UsedOnce(dir)) != 0 {
		t.Errorf("%s; used %q", got, st.UsedOnce(dir))
	}
	if err := os.Remove(OnceFile(dir, "b")); err != nil {
		t.Fatal(err)
	}
	before := st.Requests
	st.MarkUsed(dir)
	for i := range st.Requests {
		if r := &st.Requests[i]; r.Used != (r.ID == "b") || before[i].Used {
			t.Errorf("%+v; before %+v", r, before[i])
		}
	}
	if got := st.UsedOnce(dir); !slices.Equal(got, []string{"b"}) {
		t.Errorf("used: %q", got)
	}
	st.Unmark(dir)
	if got := there(); got != "once-a" {
		t.Errorf("one in force: %s", got)
	}
	st.Requests[0].State = RequestRevoked
	st.Unmark(dir)
	if got := there(); got != "" {
		t.Errorf("one that is over: %s", got)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), OnceFile(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := st.Requests[1].MarkUnused(dir); err == nil {
		t.Error("a link was followed")
	}
}

// TestI1_RequestsHaveTheirLines in the audit log: what was asked for, and who answered what and why.
func TestI1_RequestsHaveTheirLines(t *testing.T) {
	t.Parallel()
	r := Request{ID: "x", Host: "a.example", Port: 8443, Methods: []string{"GET", "POST"}, Why: "to build", By: "me", Reason: "it builds"}
	base := audit.Event{Host: "a.example", Port: 8443, Method: "GET, POST", Rule: "request x"}
	for _, c := range []struct {
		kind     audit.Kind
		state    RequestState
		lifetime string
		reason   string
		by       string
		action   string
		message  string
	}{
		{audit.AccessRequest, RequestPending, "", "", "", "", "to build"},
		{audit.AccessAnswer, RequestApproved, ForOnce, "it builds", "me", "allow", "for once: it builds"},
		{audit.AccessAnswer, RequestApproved, ForHour, "", "me", "allow", "for an hour"},
		{audit.AccessAnswer, RequestApproved, "sandbox", "", "me", "allow", "for as long as the sandbox is there"},
		{audit.AccessAnswer, RequestDenied, "", "it builds", "me", "deny", "denied: it builds"},
		{audit.AccessAnswer, RequestRevoked, ForHour, "", "me", "deny", "revoked"},
		{audit.AccessEnd, RequestExpired, "", "", "", "", "nobody answered"},
		{audit.AccessEnd, RequestApproved, ForHour, "", "", "", "its time is over"},
		{audit.AccessEnd, RequestApproved, ForOnce, "", "", "", "it was used, or its time is over"},
	} {
		r.State, r.Lifetime, r.Reason = c.state, c.lifetime, c.reason
		want := base
		want.Kind, want.By, want.Action, want.Message = c.kind, c.by, c.action, c.message
		if got := r.Event(c.kind); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
