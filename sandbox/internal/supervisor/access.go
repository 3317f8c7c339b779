package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// accessEvery is how often the lifetimes of requests and grants are looked at.
const accessEvery = time.Second

// accessRetry is when an end that could not be written down is tried again.
const accessRetry = time.Minute

// access follows what was granted: when it is over, and which grants for once were used.
type access struct {
	s       *supervisor
	watches atomic.Bool // grants for once are in force

	mu   sync.Mutex
	next time.Time         // the first end, the zero time for none
	once map[string]bool   // by the names of their rules
	used map[uint64]string // the rules by the flows that they let through
	over []string          // ids of grants for once whose first flow has ended
	wake chan struct{}

	unwritten []string // of over, once it could not be written down
}

// begin takes what is in force from now on.
func (a *access) begin(st *state.Stored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wake == nil {
		a.wake, a.used = make(chan struct{}, 1), map[uint64]string{}
	}
	a.next, a.once = st.NextEnd(), map[string]bool{}
	for i := range st.Requests {
		if r := &st.Requests[i]; r.State == state.RequestApproved && r.Lifetime == state.ForOnce {
			a.once[r.RuleName()] = true
		}
	}
	a.watches.Store(len(a.once) > 0)
}

// saw notes which flows a grant for once has let through, and when they end. It never blocks.
func (a *access) saw(e *audit.Event) {
	if !a.watches.Load() || e.Flow == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch rule := a.used[e.Flow]; {
	case e.Kind == audit.FlowClose && rule != "":
		delete(a.used, e.Flow)
		a.over = append(a.over, strings.TrimPrefix(rule, (&state.Request{}).RuleName()))
		delete(a.once, rule) // its other flows end with it
		select {
		case a.wake <- struct{}{}:
		default:
		}
	case (e.Kind == audit.FlowOpen || e.Kind == audit.HTTPRequest) && e.Action != "deny" && a.once[e.Rule]:
		a.used[e.Flow] = e.Rule
	}
}

// take gives out the grants for once that are over.
func (a *access) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := slices.Concat(a.over, a.unwritten)
	a.over, a.unwritten = nil, nil
	return over
}

// again has what is over looked at once more, from at on. used are grants for once among it.
func (a *access) again(used []string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unwritten = append(a.unwritten, used...)
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
	}
}

// due reports whether something is over by now.
func (a *access) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.over) > 0 || !a.next.IsZero() && !now.Before(a.next)
}

// watch ends grants and requests whose time is over, until the sandbox ends.
func (a *access) watch() {
	tick := time.NewTicker(accessEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.s.ctx.Done():
			return
		case <-a.wake:
		case <-tick.C:
		}
		if !a.due(time.Now()) {
			continue
		}
		if a.change(nil) != nil {
			return // the sandbox ends
		}
	}
}

// errUnwritten is of an end that is in force, and could not be written down.
var errUnwritten = errors.New("the end of what was granted could not be written down")

var errNoNetwork = fmt.Errorf("%w: the sandbox has no network", state.ErrRequest)

// ask adds a request. It opens nothing.
func (a *access) ask(r *state.Request) error {
	if a.s.gateway == nil {
		return errNoNetwork
	}
	return a.change(func(st *state.Stored) (*audit.Event, error) {
		if err := st.Ask(r, time.Now()); err != nil {
			return nil, err
		}
		e := st.Requests[len(st.Requests)-1].Event(audit.AccessRequest)
		return &e, nil
	})
}

// answer puts what a person approved in force, or takes it back.
func (a *access) answer(answer *state.RequestAnswer) error {
	if a.s.gateway == nil {
		return errNoNetwork
	}
	return a.change(func(st *state.Stored) (*audit.Event, error) {
		r, err := st.Answer(answer, time.Now())
		if err != nil {
			return nil, err
		}
		e := r.Event(audit.AccessAnswer)
		return &e, nil
	})
}

// change ends the requests whose time is over, then lets do change them, and puts what is granted then in force and
// down in the state. What can't be in force is an error, and changes nothing.
func (a *access) change(do func(*state.Stored) (*audit.Event, error)) error {
	a.s.named.storedMu.Lock()
	defer a.s.named.storedMu.Unlock()
	due := a.due(time.Now())
	switch err := a.settle(); {
	case errors.Is(err, errUnwritten) && do == nil:
		fmt.Fprintln(os.Stderr, err) // the supervisor's log
		return nil
	case err != nil && due && !errors.Is(err, errUnwritten):
		a.s.cancel(fmt.Errorf("what was granted could not be taken back when its time was over: %w", err))
		return err
	case err != nil || do == nil:
		return err
	}
	st, err := state.ReadStored(a.s.plan.Dir, a.s.plan.Name)
	if err != nil {
		return err
	}
	before := st.Granted()
	event, err := do(st)
	if err != nil {
		return err
	}
	if err := a.put(st); err != nil {
		return errors.Join(err, a.s.gateway.Grant(before))
	}
	a.s.emit(*event)
	return nil
}

// settle ends the requests whose time is over. One that can't be written down is over all the same, and written down later.
func (a *access) settle() error {
	st, err := state.ReadStored(a.s.plan.Dir, a.s.plan.Name)
	if err != nil {
		return err
	}
	used := a.take()
	ended := st.Settle(time.Now(), used...)
	if len(ended) == 0 {
		return nil
	}
	if err := a.s.gateway.Grant(st.Granted()); err != nil {
		return err
	}
	a.begin(st)
	if err := state.WriteJSON(a.s.plan.Dir, state.StoredFile, st); err != nil { // such as a full disk
		a.again(used, time.Now().Add(accessRetry))
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	for i := range ended {
		a.s.emit(ended[i].Event(audit.AccessEnd))
	}
	return nil
}

func (a *access) put(st *state.Stored) error {
	if err := a.s.gateway.Grant(st.Granted()); err != nil {
		return err
	}
	err := state.WriteJSON(a.s.plan.Dir, state.StoredFile, st)
	if err == nil {
		a.begin(st)
	}
	return err
}
