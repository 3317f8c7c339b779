package state

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/policies"
)

const (
	// requestWait is how long a request waits for its answer.
	requestWait = 30 * time.Minute
	// grantHour is how long a grant for an hour lasts, and an unused grant for once.
	grantHour = time.Hour
	// maxPending bounds the requests of one sandbox that wait, maxRequests all that are kept of it.
	maxPending  = 8
	maxRequests = 64
	// maxRequestText bounds what is said with a request or its answer, in bytes.
	maxRequestText = 500
)

// The lifetimes of a grant.
const (
	// ForOnce ends with the first connection that used it.
	ForOnce = "once"
	ForHour = "hour"
	// forSandbox lasts until the sandbox is removed.
	forSandbox = "sandbox"
)

// Lifetimes are the lifetimes of a grant, the shortest first.
func Lifetimes() []string { return []string{ForOnce, ForHour, forSandbox} }

// RequestState says what became of a request.
type RequestState string

// The states of a request.
const (
	RequestPending  RequestState = "pending"
	RequestApproved RequestState = "approved"
	RequestDenied   RequestState = "denied"
	RequestExpired  RequestState = "expired" // nobody answered it
	RequestEnded    RequestState = "ended"   // it was approved, and its lifetime is over
	RequestRevoked  RequestState = "revoked" // it was approved, and taken back
)

// Request asks a person to let a sandbox reach a host.
type Request struct {
	ID      string   `json:"id"`
	Host    string   `json:"host"`
	Port    uint16   `json:"port"`
	Methods []string `json:"methods,omitempty"` // none are all
	// Why is the asker's own reason.
	Why     string       `json:"why,omitempty"`
	Asked   time.Time    `json:"asked"`
	Expires time.Time    `json:"expires"` // while it waits
	State   RequestState `json:"state"`
	// The rest belongs to the answer. Only an approval has Lifetime and Until; a grant without Until lasts as long as
	// the sandbox.
	Lifetime string     `json:"lifetime,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Answered *time.Time `json:"answered,omitempty"`
	// Used means that an approval for once has let its connection through. It is not stored.
	Used bool `json:"used,omitempty"`
}

// RequestAnswer answers a request.
type RequestAnswer struct {
	ID      string `json:"id"`
	Approve bool   `json:"approve"`
	// Only an approval has a Lifetime.
	Lifetime string `json:"lifetime,omitempty"`
	// By says who answers, Reason why.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// ErrRequest is wrapped by errors about a request that can't be made or answered.
var ErrRequest = errors.New("request refused")

// NewRequest is a request that waits from now on.
func NewRequest(host string, port uint16, methods []string, why string, now time.Time) Request {
	now = now.UTC().Truncate(time.Second)
	id := strings.ToLower(rand.Text()[:8]) // base32
	return Request{ID: id, Host: host, Port: port, Methods: methods, Why: why, Asked: now, Expires: now.Add(requestWait), State: RequestPending}
}

// Rule is what the request becomes in a policy.
func (r *Request) Rule(floor *policies.Policy) (policies.Rule, error) {
	rule, err := policies.RequestRule(floor, r.Host, r.Port, r.Methods)
	rule.Name, rule.Why = r.RuleName(), "approved by "+r.By
	return rule, err
}

// RuleName is the name of the request's rule in verdicts.
func (r *Request) RuleName() string { return "request " + r.ID }

// OnceFile is in a sandbox's directory as long as the grant for once of that id is unused. Its first use removes it: a
// removal works on a full disk too, and no kill undoes it.
func OnceFile(dir, id string) string { return filepath.Join(dir, oncePrefix+id) }

const oncePrefix = "once-"

// MarkUnused makes the OnceFile of a request that was approved for once just now.
func (r *Request) MarkUnused(dir string) error {
	if r.State != RequestApproved || r.Lifetime != ForOnce {
		return nil
	}
	f, err := os.OpenFile(OnceFile(dir, r.ID), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// UsedOnce are the ids of the grants for once that were used.
func (st *Stored) UsedOnce(dir string) (ids []string) {
	for i := range st.Requests {
		r := &st.Requests[i]
		if r.State != RequestApproved || r.Lifetime != ForOnce {
			continue
		}
		if _, err := os.Lstat(OnceFile(dir, r.ID)); err != nil {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// MarkUsed sets Used of grants for once whose connection is open, or whose end is not written down yet: after a kill,
// the next start does that.
func (st *Stored) MarkUsed(dir string) {
	used := st.UsedOnce(dir)
	st.Requests = slices.Clone(st.Requests)
	for i := range st.Requests {
		st.Requests[i].Used = slices.Contains(used, st.Requests[i].ID)
	}
}

// Unmark removes each OnceFile of a grant that is over. One that stays does no harm.
func (st *Stored) Unmark(dir string) {
	for i := range st.Requests {
		if r := &st.Requests[i]; r.Lifetime == ForOnce && r.State != RequestApproved {
			_ = os.Remove(OnceFile(dir, r.ID))
		}
	}
}

// Settle ends what is over by now, and the grants for once that are in used, and reports what it ended.
func (st *Stored) Settle(now time.Time, used ...string) (ended []Request) {
	st.Requests = slices.Clone(st.Requests)
	for i := range st.Requests {
		r := &st.Requests[i]
		switch {
		case r.State == RequestPending && !now.Before(r.Expires):
			r.State = RequestExpired
		case r.State == RequestApproved && (r.Until != nil && !now.Before(*r.Until) || slices.Contains(used, r.ID)):
			r.State = RequestEnded
		default:
			continue
		}
		ended = append(ended, *r)
	}
	return ended
}

// requestID is the form of an id.
var requestID = lazyregexp.New(`^[a-z2-7]{8}$`)

// Ask adds a request, which waits from now on.
func (st *Stored) Ask(asked *Request, now time.Time) error {
	r := NewRequest(asked.Host, asked.Port, asked.Methods, asked.Why, now) // nothing of an answer is the asker's
	if r.ID = asked.ID; !requestID.MatchString(r.ID) {
		return fmt.Errorf("%w: the id must have the form %s", ErrRequest, requestID)
	}
	if _, err := r.Rule(st.RequestFloor()); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := checkRequestText(r.Why); err != nil {
		return err
	}
	pending := 0
	for i := range st.Requests {
		if st.Requests[i].State == RequestPending {
			pending++
		}
		if st.Requests[i].ID == r.ID {
			return fmt.Errorf("%w: there is a request with this id already", ErrRequest)
		}
	}
	if pending >= maxPending {
		return fmt.Errorf("%w: %d wait for an answer already; wait until one is answered or expires", ErrRequest, pending)
	}
	if len(st.Requests) >= maxRequests {
		i := slices.IndexFunc(st.Requests, func(r Request) bool { return r.State != RequestPending && r.State != RequestApproved })
		if i < 0 {
			return fmt.Errorf("%w: %d are in force or wait; take one back", ErrRequest, len(st.Requests))
		}
		st.Requests = slices.Delete(slices.Clone(st.Requests), i, i+1)
	}
	st.Requests = append(slices.Clone(st.Requests), r)
	return nil
}

func checkRequestText(text string) error {
	if len(text) > maxRequestText || !utf8.ValidString(text) {
		return fmt.Errorf("%w: a reason of %d bytes; give at most %d of UTF-8", ErrRequest, len(text), maxRequestText)
	}
	return nil
}

// Answer answers a request that waits, or takes back one that was approved, and returns it.
func (st *Stored) Answer(a *RequestAnswer, now time.Time) (*Request, error) {
	i := slices.IndexFunc(st.Requests, func(r Request) bool { return r.ID == a.ID })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is none of the id %.40q", ErrRequest, a.ID)
	}
	r := &st.Requests[i]
	if err := checkRequestText(a.Reason); err != nil {
		return nil, err
	}
	if err := checkRequestText(a.By); err != nil {
		return nil, err
	}
	switch {
	case r.State == RequestPending && a.Approve:
		if !slices.Contains(Lifetimes(), a.Lifetime) {
			return nil, fmt.Errorf("%w: a lifetime of %.40q; it is %s", ErrRequest, a.Lifetime, strings.Join(Lifetimes(), ", "))
		}
		r.State, r.Lifetime = RequestApproved, a.Lifetime
		if a.Lifetime != forSandbox {
			until := now.UTC().Truncate(time.Second).Add(grantHour)
			r.Until = &until
		}
	case r.State == RequestPending:
		r.State = RequestDenied
	case r.State == RequestApproved && !a.Approve:
		r.State = RequestRevoked
	default:
		return nil, fmt.Errorf("%w: it is %s already", ErrRequest, r.State)
	}
	at := now.UTC().Truncate(time.Second)
	r.By, r.Reason, r.Answered = a.By, a.Reason, &at
	return r, nil
}

// NextEnd is when the next waiting request or grant ends; the zero time if there is none.
func (st *Stored) NextEnd() (at time.Time) {
	for i := range st.Requests {
		r := &st.Requests[i]
		end := time.Time{}
		switch {
		case r.State == RequestPending:
			end = r.Expires
		case r.State == RequestApproved && r.Until != nil:
			end = *r.Until
		}
		if !end.IsZero() && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// Event is the request's line in the audit log. Kind says of what.
func (r *Request) Event(kind audit.Kind) audit.Event {
	e := audit.Event{Kind: kind, Host: r.Host, Port: r.Port, Method: strings.Join(r.Methods, ", "), Rule: r.RuleName(), Message: r.Why}
	switch kind { //nolint:exhaustive // the others are not of requests
	case audit.AccessAnswer:
		e.By, e.Action, e.Message = r.By, "deny", string(r.State)
		if r.State == RequestApproved {
			e.Action, e.Message = "allow", "for "+map[string]string{ForOnce: "once", ForHour: "an hour", forSandbox: "as long as the sandbox is there"}[r.Lifetime]
		}
		if r.Reason != "" {
			e.Message += ": " + r.Reason
		}
	case audit.AccessEnd:
		e.Message = "its time is over"
		if r.State == RequestExpired {
			e.Message = "nobody answered"
		} else if r.Lifetime == ForOnce {
			e.Message = "it was used, or its time is over"
		}
	}
	return e
}

// Opens reports whether an event is of an approval, which stands only once its line is written.
func Opens(e *audit.Event) bool { return e.Kind == audit.AccessAnswer && e.Action == "allow" }

// Unopened is a second line about an approval, which could not be put in force.
func Unopened(e *audit.Event) audit.Event {
	end := *e
	end.Kind, end.Action, end.By, end.Message = audit.AccessEnd, "", "", "it could not be put in force"
	return end
}

// RequestFloor is the policy whose [agent] bounds requests: the operator's floor, or the sandbox's own policy where there
// is none. One that can't be read allows nothing beyond what it says itself: the zero policy denies, and its rules are
// judged beside it.
func (st *Stored) RequestFloor() *policies.Policy {
	text := st.Floor
	if text == "" {
		text = st.Policy
	}
	p, err := policies.Parse("floor", []byte(text), nil)
	if err != nil {
		return &policies.Policy{Agent: &policies.Agent{MayRequest: []policies.SecretHost{}}}
	}
	return p
}

// Granted are the rules of the requests that are approved.
func (st *Stored) Granted() []policies.Rule {
	var rules []policies.Rule
	var floor *policies.Policy
	for i := range st.Requests {
		if st.Requests[i].State != RequestApproved {
			continue
		}
		if floor == nil {
			floor = st.RequestFloor()
		}
		if rule, err := st.Requests[i].Rule(floor); err == nil { // else the floor lets nobody ask for it any longer
			rules = append(rules, rule)
		}
	}
	return rules
}
