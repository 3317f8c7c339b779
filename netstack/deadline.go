package netstack

import (
	"sync"
	"time"
)

// deadline is one of a connection's: a channel that closes when it passes.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{}
}

func makeDeadline() deadline { return deadline{passed: make(chan struct{})} }

// set moves the deadline; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stopped := d.timer == nil || d.timer.Stop()
	d.timer = nil
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
		if !stopped { // the timer is about to close the old channel
			d.passed = make(chan struct{})
		}
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(passed) })
		return
	}
	close(passed)
}

// wait returns a channel that closes when the deadline passes.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) expired() bool {
	select {
	case <-d.wait():
		return true
	default:
		return false
	}
}
