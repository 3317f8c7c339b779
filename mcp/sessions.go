package mcp

import (
	"sync"
	"time"
)

// keepSession is how long a session is kept after a call. The next call often comes soon, and opening a session takes a
// round trip to the guest. It is short because each session takes resources of the guest.
const keepSession = 10 * time.Second

// sessions are those with running sandboxes, kept for the next call.
type sessions struct {
	keep   time.Duration
	mu     sync.Mutex
	byName map[string]*session
}

// running is a machine that reports when it ends.
type running interface {
	machine
	Done() <-chan struct{}
}

// session is one with one run of a sandbox.
type session struct {
	running
	started time.Time // of the run
	users   int
	idle    *time.Timer
}

// take returns the session with the run of a sandbox that began at started, or nil if there is no live one.
func (k *sessions) take(name string, started time.Time) *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byName[name]
	if s == nil {
		return nil
	}
	select {
	case <-s.Done():
	default:
		if s.started.Equal(started) {
			s.idle.Stop()
			s.users++
			return s
		}
	}
	k.forget(name, s)
	return nil
}

// add keeps a newly opened session and returns it, in use.
func (k *sessions) add(name string, started time.Time, m running) *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byName == nil {
		k.byName = map[string]*session{}
	}
	if old := k.byName[name]; old != nil { // another call opened one at the same time
		k.forget(name, old)
	}
	s := &session{running: m, started: started, users: 1}
	s.idle = time.AfterFunc(k.keep, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if s.users == 0 {
			k.forget(name, s)
		}
	})
	s.idle.Stop()
	k.byName[name] = s
	return s
}

// giveBack ends one use of a session. A session that was forgotten meanwhile closes with its last use.
func (k *sessions) giveBack(name string, s *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if k.byName[name] != s {
		_ = s.Close() // the sandbox runs on
		return
	}
	s.idle.Reset(k.keep)
}

// forget closes a session that nobody uses; one in use is closed by its last user. The caller holds the lock.
func (k *sessions) forget(name string, s *session) {
	if k.byName[name] == s {
		delete(k.byName, name)
	}
	if s.users == 0 {
		_ = s.Close() // the sandbox runs on
	}
}

// lent is a session that a call uses.
type lent struct {
	machine
	giveBack func()
}

func (l lent) Close() error {
	l.giveBack()
	return nil
}

func (k *sessions) lend(name string, s *session) machine {
	return lent{s.running, sync.OnceFunc(func() { k.giveBack(name, s) })}
}
