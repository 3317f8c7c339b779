package ca

import (
	"container/list"
	"crypto/tls"
	"sync"
	"time"
)

// maxLeaves bounds the leaves kept: the guest chooses names, within what rules
// with wildcards allow (invariant 11). At the bound the one unused for longest
// goes and is signed again when it's asked for. A leaf takes about 2 KiB.
const maxLeaves = 1024

// leafCache is a least-recently-used map from a name to its leaf.
type leafCache struct {
	mu    sync.Mutex
	max   int
	order *list.List // of leafEntry, most recently used first
	at    map[string]*list.Element
}

type leafEntry struct {
	subject string
	cert    *tls.Certificate
}

func newLeafCache(limit int) *leafCache {
	return &leafCache{max: limit, order: list.New(), at: make(map[string]*list.Element)}
}

// get returns the leaf if there is one that is still valid at the given time.
func (c *leafCache) get(subject string, at time.Time) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.at[subject]
	if el == nil {
		return nil
	}
	entry, ok := el.Value.(leafEntry)
	if !ok || entry.cert.Leaf.NotAfter.Before(at) {
		return nil
	}
	c.order.MoveToFront(el)
	return entry.cert
}

func (c *leafCache) put(subject string, cert *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.at[subject]; el != nil {
		c.order.Remove(el)
	}
	c.at[subject] = c.order.PushFront(leafEntry{subject, cert})
	for c.order.Len() > c.max {
		last := c.order.Back()
		if entry, ok := c.order.Remove(last).(leafEntry); ok {
			delete(c.at, entry.subject)
		}
	}
}
