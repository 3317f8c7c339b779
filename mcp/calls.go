package mcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long a call may take before it continues in the background: some clients give up after a minute, and
	// a first pull and boot can take longer.
	patience = 45 * time.Second
	// waiting is how long the action wait waits. It is below patience, since it is a call itself and must not continue in
	// the background.
	waiting = 40 * time.Second
	// maxCalls bounds the background calls, finished ones included until their result is asked for.
	maxCalls = 16
	// callPrefix begins the names of such calls, which no job can have.
	callPrefix = "call-"
)

// calls are the calls in progress. One that takes longer than patience gets a name, and ends by itself, by kill, or with
// the server.
type calls struct {
	patience, waiting time.Duration

	// unnamed says that the list in force has no tool to ask for a call by its name, so the client waits for each call's
	// end.
	unnamed bool

	mu      sync.Mutex
	closed  bool
	live    map[*call]bool
	last    int
	names   []string // the oldest first
	byName  map[string]*call
	running sync.WaitGroup
}

type call struct {
	tool   string
	cancel context.CancelFunc
	done   chan struct{}
	text   string // and err, once it is done
	err    error
}

func newCalls() *calls {
	return &calls{patience: patience, waiting: waiting, live: map[*call]bool{}, byName: map[string]*call{}}
}

// do returns the result of work, or a name to ask by if that takes longer than patience. Until then the work ends if its
// client gives up.
func (c *calls) do(ctx context.Context, tool string, work func(context.Context) (string, error)) (string, error) {
	one, err := c.begin(ctx, tool, work)
	if err != nil {
		return "", err
	}
	if one.wait(ctx, c.patience) {
		return one.text, one.err
	}
	if ctx.Err() == nil && c.unnamed {
		one.wait(ctx, maxTimeout+patience)
	} else if ctx.Err() == nil {
		if name, ok := c.keep(one); ok {
			return underWay(tool, name), nil
		}
		one.wait(ctx, maxTimeout+patience) // there is no room for another background call: wait for this one
	}
	one.cancel()
	<-one.done // nothing of it is left
	return one.text, one.err
}

func (c *calls) begin(ctx context.Context, tool string, work func(context.Context) (string, error)) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, say("the server ends")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &call{tool: tool, cancel: cancel, done: make(chan struct{})}
	c.live[one] = true
	c.running.Go(func() {
		one.text, one.err = work(ctx)
		cancel()
		close(one.done)
		c.mu.Lock()
		delete(c.live, one)
		c.mu.Unlock()
	})
	return one, nil
}

// wait reports whether the call was done in that time.
func (c *call) wait(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// callInfo is a background call, as a client sees it.
type callInfo struct {
	Name string `json:"job"`
	Tool string `json:"tool"`
	Done bool   `json:"done"`
}

// list are the background calls whose results nobody has asked for.
func (c *calls) list() []callInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]callInfo, 0, len(c.names))
	for _, name := range c.names {
		one := c.byName[name]
		all = append(all, callInfo{name, one.tool, one.ended()})
	}
	return all
}

func underWay(tool, name string) string {
	return fmt.Sprintf("%s is still under way and goes on: the tool job with action wait and job %q gives its result, once; kill ends it, list shows such calls", tool, name)
}

// keep gives a background call a name. If the list is full, the oldest finished call is dropped.
func (c *calls) keep(one *call) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) == maxCalls {
		at := slices.IndexFunc(c.names, func(name string) bool { return c.byName[name].ended() })
		if at < 0 {
			return "", false
		}
		c.drop(c.names[at])
	}
	c.last++
	name := callPrefix + strconv.Itoa(c.last)
	c.names, c.byName[name] = append(c.names, name), one
	return name, true
}

// drop forgets a call; c.mu is held.
func (c *calls) drop(name string) {
	delete(c.byName, name)
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == name })
}

// get is the call of that name.
func (c *calls) get(name string) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byName[name]; one != nil {
		return one, nil
	}
	there := "none is under way"
	if len(c.names) > 0 {
		there = "there are: " + strings.Join(c.names, ", ")
	}
	return nil, say("no such call: %s; %s", name, there)
}

// wait returns the result of a call and forgets the call. A call that isn't done keeps its name.
func (c *calls) wait(ctx context.Context, name string) (string, error) {
	one, err := c.get(name)
	if err != nil {
		return "", err
	}
	if !one.wait(ctx, c.waiting) {
		return underWay(one.tool, name), ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
	return one.text, one.err
}

// kill ends a call and loses its result. If the call has ended already, kill returns the result.
func (c *calls) kill(name string) (string, error) {
	one, err := c.get(name)
	if err != nil {
		return "", err
	}
	had := one.ended()
	one.cancel()
	<-one.done
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
	if had {
		return one.text, one.err
	}
	return name + " ended", nil
}

// close ends every call and waits until nothing of them is left.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	for one := range c.live {
		one.cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
}
