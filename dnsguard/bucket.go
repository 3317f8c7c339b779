package dnsguard

import (
	"sync/atomic"
	"time"
)

// bucket is a token bucket without a lock: the generic cell rate algorithm
// (ITU-T I.371, annex A), whose only state is the time at which the bucket would
// be full again.
type bucket struct {
	interval, burst time.Duration // of one token; of a full bucket
	full            atomic.Int64
}

// newBucket returns a bucket with perSecond tokens and that burst; 0 or less is
// no bound.
func newBucket(perSecond int) *bucket {
	if perSecond <= 0 {
		return &bucket{}
	}
	return &bucket{interval: time.Second / time.Duration(perSecond), burst: time.Second}
}

// take takes a token at the time now and reports whether there was one.
func (b *bucket) take(now time.Duration) bool {
	if b.interval == 0 {
		return true
	}
	for {
		old := b.full.Load()
		next := max(old, int64(now)) + int64(b.interval)
		if next > int64(now+b.burst) {
			return false
		}
		if b.full.CompareAndSwap(old, next) {
			return true
		}
	}
}
