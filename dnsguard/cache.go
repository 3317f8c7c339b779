package dnsguard

import (
	"sync"
	"time"
)

// cacheOverhead is what an entry costs beside its bytes, about: the reply, its
// map slot, its explanation.
const cacheOverhead = 512

// cache keeps replies until their TTL ends, at most maxCacheEntries and
// maxCacheBytes of them; what was put longest ago goes first.
type cache struct {
	mu      sync.RWMutex
	entries map[string]*cacheEntry
	bytes   int
	// ring is the list of all entries, oldest first.
	ring cacheEntry
}

type cacheEntry struct {
	key        string
	reply      *reply
	prev, next *cacheEntry
}

func newCache() *cache {
	c := &cache{entries: make(map[string]*cacheEntry)}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// get returns what is kept under key and still good at the time now, or nil.
func (c *cache) get(key []byte, now time.Duration) *reply {
	c.mu.RLock()
	entry := c.entries[string(key)]
	c.mu.RUnlock()
	if entry == nil || now >= entry.reply.cacheUntil || !entry.reply.pinsCurrent() {
		return nil
	}
	return entry.reply
}

// put keeps r until its cacheUntil, and returns how many entries it pushed out.
func (c *cache) put(key string, r *reply) (evicted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[key]; old != nil {
		c.remove(old)
	}
	added := &cacheEntry{key: key, reply: r}
	added.prev, added.next = c.ring.prev, &c.ring
	c.ring.prev.next, c.ring.prev = added, added
	c.entries[key] = added
	c.bytes += added.size()
	for len(c.entries) > maxCacheEntries || c.bytes > maxCacheBytes {
		c.remove(c.ring.next)
		evicted++
	}
	return evicted
}

func (c *cache) remove(e *cacheEntry) {
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.entries, e.key)
	c.bytes -= e.size()
}

func (e *cacheEntry) size() int { return cacheOverhead + 2*len(e.key) + 4*len(e.reply.body) }
