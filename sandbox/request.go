package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Requests for more of the network than a policy allows, which a person answers.
type (
	// Request asks a person to let a sandbox reach a host.
	Request = state.Request
	// RequestAnswer answers a request.
	RequestAnswer = state.RequestAnswer
	// RequestState says what became of a request.
	RequestState = state.RequestState
)

// The states of a request.
const (
	RequestPending  = state.RequestPending
	RequestApproved = state.RequestApproved
	RequestDenied   = state.RequestDenied
	RequestExpired  = state.RequestExpired // nobody answered it
	RequestEnded    = state.RequestEnded   // it was approved, and its lifetime is over
	RequestRevoked  = state.RequestRevoked // it was approved, and taken back
)

// ErrRequest is wrapped by errors about a request that can't be made or answered.
var ErrRequest = state.ErrRequest

// RequestLifetimes are what RequestAnswer.Lifetime may be, the shortest first.
func RequestLifetimes() []string { return state.Lifetimes() }

// Requests are the requests for more of the network of the sandboxes of a state directory.
type Requests struct{ home *Home }

// Requests are those of h's sandboxes.
func (h *Home) Requests() Requests { return Requests{h} }

// Ask puts a request to a person: https from the sandbox of that name to one host, at one port (0 is 443), by methods, none
// for all. It opens nothing. ErrRequest if the sandbox's floor lets nobody ask for it, or no answer would help.
func (rs Requests) Ask(ctx context.Context, name, host string, port uint16, methods []string, why string) (Request, error) {
	st, err := loadStored(rs.home, name)
	if err != nil {
		return Request{}, Fail(err)
	}
	if st.Parent != "" { // what a person gives it would be more than its parent has
		return Request{}, Fail(fmt.Errorf("%w: sandbox %s is a child, which has no more than its parent", ErrRequest, name))
	}
	r := state.NewRequest(host, port, methods, why, time.Now())
	rule, err := r.Rule(st.RequestFloor())
	if err != nil {
		return Request{}, Fail(fmt.Errorf("%w: %w", ErrRequest, err))
	}
	r.Host, r.Port = rule.Hosts[0].String(), rule.Ports[0].First
	if err := wouldHelp(rs.home, name, &rule); err != nil {
		return Request{}, Fail(err)
	}
	st.Settle(time.Now())
	if err := st.Ask(&r, time.Now()); err != nil { // a supervisor's refusal would be no ErrRequest
		return Request{}, Fail(err)
	}
	err = changeRequests(ctx, rs.home, name, Changes{Ask: &r}, func(st *state.Stored) (audit.Event, error) {
		if err := st.Ask(&r, time.Now()); err != nil {
			return audit.Event{}, err
		}
		return r.Event(audit.AccessRequest), nil
	})
	return r, Fail(err)
}

// wouldHelp is an error where an approval would change nothing.
func wouldHelp(h *Home, name string, rule *policies.Rule) error {
	p, err := h.Policy(name)
	if err != nil {
		return err
	}
	with, err := policies.WithRule(p, *rule)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	to, path, methods := fmt.Sprintf("%s:%d", rule.Hosts[0], rule.Ports[0].First), "/", rule.Methods
	if len(methods) == 0 {
		methods, path = []string{""}, ""
	}
	helps := false
	for _, m := range methods {
		before, err := Explain(p, to, m, path)
		if err != nil {
			return err
		}
		after, err := Explain(with, to, m, path)
		if err != nil {
			return err
		}
		if after.Denied() {
			return fmt.Errorf("%w: the policy denies it, whoever approves: %s", ErrRequest, after.Message)
		}
		helps = helps || before.Denied() || m == "" && before.Action != egress.Allow.String() // inspected, for some methods or paths
	}
	if !helps {
		return fmt.Errorf("%w: the policy allows it already", ErrRequest)
	}
	return nil
}

// List returns the requests of the sandbox of that name with their states, the oldest first.
func (rs Requests) List(name string) ([]Request, error) {
	st, err := loadStored(rs.home, name)
	if err != nil {
		return nil, Fail(err)
	}
	st.Settle(time.Now())
	st.MarkUsed(namedPath(rs.home, name))
	return st.Requests, nil
}

// Find returns the request of that id, and the name of its sandbox.
func (rs Requests) Find(id string) (name string, r Request, err error) {
	all, err := rs.home.List()
	if err != nil {
		return "", Request{}, err
	}
	for i := range all {
		requests, err := rs.List(all[i].Name)
		if errors.Is(err, ErrNoSandbox) || errors.Is(err, ErrState) {
			continue
		}
		if err != nil {
			return "", Request{}, err
		}
		for _, r := range requests {
			if r.ID == id {
				return all[i].Name, r, nil
			}
		}
	}
	return "", Request{}, Fail(fmt.Errorf("%w: there is none of the id %.40q; `msb requests ls` shows them", ErrRequest, id))
}

// Answer answers a request of the sandbox of that name, or revokes an approved one. An approval is in force when Answer
// returns, or from the next start on.
func (rs Requests) Answer(ctx context.Context, name string, a RequestAnswer) error {
	st, err := loadStored(rs.home, name)
	if err != nil {
		return Fail(err)
	}
	st.Settle(time.Now(), st.UsedOnce(namedPath(rs.home, name))...)
	if _, err := st.Answer(&a, time.Now()); err != nil {
		return Fail(err)
	}
	return Fail(changeRequests(ctx, rs.home, name, Changes{Answer: &a}, func(st *state.Stored) (audit.Event, error) {
		r, err := st.Answer(&a, time.Now())
		if err == nil {
			err = r.MarkUnused(namedPath(rs.home, name))
		}
		if err != nil {
			return audit.Event{}, err
		}
		return r.Event(audit.AccessAnswer), nil
	}))
}

// changeRequests lets the sandbox's supervisor make a change, or makes it with do if none runs.
func changeRequests(ctx context.Context, h *Home, name string, c Changes, do func(*state.Stored) (audit.Event, error)) error {
	s, err := connectNamed(ctx, h, name)
	if err == nil {
		text, err := json.Marshal(c)
		if err == nil {
			err = s.client.Update(ctx, text)
		}
		return errors.Join(answered(name, err), s.Close())
	}
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	return changeStopped(ctx, h, name, err, func(run *runDir, st *state.Stored) error {
		var events []audit.Event
		ended := st.Settle(time.Now(), st.UsedOnce(run.dir)...)
		for i := range ended {
			events = append(events, ended[i].Event(audit.AccessEnd))
		}
		event, err := do(st)
		if err != nil {
			return err
		}
		events = append(events, event)
		opens := state.Opens(&event)
		if opens { // without its line it doesn't stand
			if err := recordEvents(st, run.dir, events...); err != nil {
				return err
			}
			events = nil
		}
		if err := state.WriteJSON(run.dir, state.StoredFile, st); err != nil {
			if opens {
				err = errors.Join(err, logEvents(st, run.dir, state.Unopened(&event)))
			}
			return err
		}
		st.Unmark(run.dir)
		return logEvents(st, run.dir, events...)
	})
}
