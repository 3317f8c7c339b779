package dnsguard

import "sync/atomic"

// Stats counts what a Guard did since it was made.
type Stats struct {
	// Queries are all questions, by whatever way; the others are parts of them.
	Queries uint64
	// Cached were answered from the cache.
	Cached uint64
	// Refused are names and questions that are never answered; Rebinding are
	// answers of which nothing was left; Failed are those for which no upstream
	// had an answer.
	Refused, Rebinding, Failed uint64
	// Limited were above the rate, the bound on questions in flight, or the
	// bound on questions below a wildcard.
	Limited uint64
	// Malformed could not be read; Dropped are those of them that got no
	// answer, because they had no header or were answers themselves.
	Malformed, Dropped uint64
	// RemovedAddrs are addresses taken out of answers.
	RemovedAddrs uint64
	// CacheEvicted, PinnedNamesEvicted and PinsEvicted went before their time
	// because a table was full.
	CacheEvicted, PinnedNamesEvicted, PinsEvicted uint64
	// TCPRefused are connections closed because there were too many.
	TCPRefused uint64
}

type counters struct {
	queries, cached, refused, rebinding, failed, limited  atomic.Uint64
	malformed, dropped, removed, cacheEvicted, tcpRefused atomic.Uint64
}

// Stats returns the counts so far.
func (g *Guard) Stats() Stats {
	c := &g.stats
	return Stats{
		Queries:            c.queries.Load(),
		Cached:             c.cached.Load(),
		Refused:            c.refused.Load(),
		Rebinding:          c.rebinding.Load(),
		Failed:             c.failed.Load(),
		Limited:            c.limited.Load(),
		Malformed:          c.malformed.Load(),
		Dropped:            c.dropped.Load(),
		RemovedAddrs:       c.removed.Load(),
		CacheEvicted:       c.cacheEvicted.Load(),
		PinnedNamesEvicted: g.pins.evictedNames.Load(),
		PinsEvicted:        g.pins.evictedAddrs.Load(),
		TCPRefused:         c.tcpRefused.Load(),
	}
}

// count counts one answered question.
func (c *counters) count(o Outcome) {
	switch o {
	case OutcomeRefusedName, OutcomeRefusedQuery:
		c.refused.Add(1)
	case OutcomeRebinding:
		c.rebinding.Add(1)
	case OutcomeLimited:
		c.limited.Add(1)
	case OutcomeFailed:
		c.failed.Add(1)
	case OutcomeAnswered, OutcomeEmpty, OutcomeNoName, OutcomeLocal:
	}
}
