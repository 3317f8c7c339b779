package dnsguard

import "sync"

// inflight makes everyone who asks the same question at the same time share one
// exchange (singleflight): a thousand questions cost the upstream one, and give a
// spoofer one race instead of a thousand (the birthday attack on resolvers).
type inflight struct {
	mu   sync.Mutex
	open map[string]*call
	max  int
	shut bool
	wg   sync.WaitGroup
}

// call is one exchange under way and who waits for its reply.
type call struct{ waiting []func(*reply) }

func newInflight(max int) *inflight {
	return &inflight{open: make(map[string]*call), max: max}
}

// join calls done once, in another goroutine, with the reply of the call of key;
// if none is under way, it starts one that runs work. It returns false, and calls
// nothing, if there is no room for another call.
func (f *inflight) join(key string, work func() *reply, done func(*reply)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.open[key]; c != nil {
		c.waiting = append(c.waiting, done)
		return true
	}
	if f.shut || len(f.open) >= f.max {
		return false
	}
	c := &call{waiting: []func(*reply){done}}
	f.open[key] = c
	f.wg.Add(1)
	go f.run(key, c, work)
	return true
}

func (f *inflight) run(key string, c *call, work func() *reply) {
	defer f.wg.Done()
	growStack()
	r := work()
	f.mu.Lock()
	delete(f.open, key)
	f.mu.Unlock()
	// A guest that doesn't take its answer must not hold up the others.
	for _, done := range c.waiting[1:] {
		f.wg.Go(func() { done(r) })
	}
	c.waiting[0](r)
}

// growStack makes the goroutine's stack as large as an exchange needs at once,
// while there is nothing on it to copy. Growing it step by step with everything
// on it was a tenth of the cost of an uncached question.
//
//go:noinline
func growStack() {
	var space [8 << 10]byte
	_ = use(&space)
}

//go:noinline
func use(space *[8 << 10]byte) byte { return space[len(space)/2] }

// close starts no more calls and waits until every one under way has delivered its
// reply.
func (f *inflight) close() {
	f.mu.Lock()
	f.shut = true
	f.mu.Unlock()
	f.wg.Wait()
}
