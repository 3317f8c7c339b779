package mcp

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// endable is a machine that says when it was closed.
type endable struct {
	machine
	over, closed chan struct{}
	once         sync.Once
}

func newEndable() *endable {
	return &endable{over: make(chan struct{}), closed: make(chan struct{})}
}

func (m *endable) Done() <-chan struct{} { return m.over }
func (m *endable) Close() error          { m.once.Do(func() { close(m.closed) }); return nil }

func (m *endable) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// TestSessionsLastAcrossCalls lends one session to several calls; one of another run, or of a run that ended, to none.
func TestSessionsLastAcrossCalls(t *testing.T) {
	t.Parallel()
	k := &sessions{keep: time.Hour}
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	m := newEndable()
	one := k.lend("a", k.add("a", first, m))
	_ = one.Close()
	_ = one.Close() // a second time is none
	if k.take("b", first) != nil {
		t.Error("another sandbox has the session")
	}
	s := k.take("a", first)
	if s == nil || s.running != running(m) || m.isClosed() {
		t.Fatal("the session was not kept")
	}
	two := k.lend("a", s)
	if k.take("a", second) != nil {
		t.Error("another run has the session")
	}
	if m.isClosed() {
		t.Error("closed while a call uses it")
	}
	_ = two.Close()
	if !m.isClosed() {
		t.Error("a session of an earlier run is open")
	}
	ended := newEndable()
	_ = k.lend("a", k.add("a", second, ended)).Close()
	close(ended.over)
	if k.take("a", second) != nil || !ended.isClosed() {
		t.Error("a session with a sandbox that ended was given out, or stayed open")
	}
	replaced := newEndable()
	_ = k.lend("a", k.add("a", second, replaced)).Close()
	k.add("a", second, newEndable())
	if !replaced.isClosed() {
		t.Error("the session before is open")
	}
}

// TestSessionsThatNobodyUsesEnd: a session keeps its sandbox from stopping when it is idle.
func TestSessionsThatNobodyUsesEnd(t *testing.T) {
	t.Parallel()
	k := &sessions{keep: time.Millisecond}
	m := newEndable()
	lent := k.lend("a", k.add("a", time.Unix(1, 0), m))
	if s := k.take("a", time.Unix(1, 0)); s == nil {
		t.Fatal("no session")
	} else {
		k.giveBack("a", s)
	}
	if m.isClosed() {
		t.Error("closed while a call uses it")
	}
	_ = lent.Close()
	<-m.closed
	if k.take("a", time.Unix(1, 0)) != nil {
		t.Error("a closed session was given out")
	}
}

// TestUsedSessionsOutliveTheirTimer that fires as a call takes the session.
func TestUsedSessionsOutliveTheirTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &sessions{keep: time.Second}
		m, began := newEndable(), time.Unix(1, 0)
		s := k.add("a", began, m)
		s.idle.Reset(time.Second) // as if it had been taken too late to stop the timer
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if k.take("a", began) != s || m.isClosed() {
			t.Error("a session that is used was forgotten")
		}
		k.giveBack("a", s)
		k.giveBack("a", s)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !m.isClosed() {
			t.Error("one that nobody uses is open")
		}
	})
}
