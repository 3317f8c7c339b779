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
	// patience is how long a client waits for an answer at once: a first pull and boot can take longer than the minute
	// after which some clients give a call up.
	patience = 45 * time.Second
	// waiting is how long the action wait waits: it is a call itself, and shall not become another that goes on.
	waiting = 40 * time.Second
	// maxCalls bounds the calls that went on without an answer, those that nobody asked for since included.
	maxCalls = 16
	// callPrefix begins the names of such calls, which no job can have.
	callPrefix = "call-"
)

// calls are those that are under way. One that outlasts its client's wait gets a name to ask by; it ends by itself, by
// kill, or with the server.
type calls struct {
	patience, waiting time.Duration

	// unnamed tells that there is no tool to ask for a call by its name: each is waited for.
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

// do answers with what work returns, or with a name to ask by if that takes longer than a client's patience. Until then a
// client that gives up ends the work.
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
		one.wait(ctx, maxTimeout+patience) // there is no room for another: it is waited for, as a short one
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

// callInfo is a call that went on, as a client sees it.
type callInfo struct {
	Name string `json:"job"`
	Tool string `json:"tool"`
	Done bool   `json:"done"`
}

// list are the calls that went on and whose results nobody has asked for.
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

// keep gives a call that goes on a name. In a full list the oldest that is done makes room: nobody asked for it.
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

// wait is the result of a call, once: it is forgotten with that. One that is not done keeps its name.
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

// kill ends a call, whose result is lost. One that has ended gives its result.
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
