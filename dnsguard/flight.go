package dnsguard

import "sync"

// flights lets everyone who asks the same question at the same time wait for
// one exchange: a guest that asks a thousand times costs the upstream one
// question, and a spoofer gets one race instead of a thousand (the birthday
// attack on resolvers).
type flights struct {
	mu   sync.Mutex
	open map[string]*flight
	max  int
	shut bool
	wg   sync.WaitGroup
}

// flight is one exchange under way and those who are to be told.
type flight struct{ waiting []func(*reply) }

func newFlights(max int) *flights {
	return &flights{open: make(map[string]*flight), max: max}
}

// board has tell called, once and in another goroutine, with the reply of the
// flight of key; if there is none under way, one is started that runs work. It
// returns false, and calls nothing, if there is no room for another flight.
func (f *flights) board(key string, work func() *reply, tell func(*reply)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.open[key]; fl != nil {
		fl.waiting = append(fl.waiting, tell)
		return true
	}
	if f.shut || len(f.open) >= f.max {
		return false
	}
	fl := &flight{waiting: []func(*reply){tell}}
	f.open[key] = fl
	f.wg.Add(1)
	go f.run(key, fl, work)
	return true
}

func (f *flights) run(key string, fl *flight, work func() *reply) {
	defer f.wg.Done()
	growStack()
	r := work()
	f.mu.Lock()
	delete(f.open, key)
	f.mu.Unlock()
	// A guest that doesn't take its answer must not hold up the others.
	for _, tell := range fl.waiting[1:] {
		f.wg.Go(func() { tell(r) })
	}
	fl.waiting[0](r)
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

// close lets no more flights start and waits until every one has landed and
// told everyone.
func (f *flights) close() {
	f.mu.Lock()
	f.shut = true
	f.mu.Unlock()
	f.wg.Wait()
}
