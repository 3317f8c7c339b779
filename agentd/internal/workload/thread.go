//go:build linux

package workload

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread runs functions one after another on one OS thread, which may stand in
// a mount namespace and a root of its own. Go starts new threads from a
// pristine one, so what is done to this thread stays with it; its root and
// working directory are its own from the start.
type Thread struct{ work chan func() }

// NewThread starts the thread. It ends with Close, never to be reused.
func NewThread() *Thread {
	t := &Thread{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with this goroutine
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			panic("unshare(CLONE_FS): " + err.Error()) // needs no right; only a kernel without it fails
		}
		for f := range t.work {
			f()
		}
	}()
	return t
}

// Do runs f on the thread and returns when it has.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.work <- func() { defer close(done); f() }
	<-done
}

// Close ends the thread. Do must not be called any more.
func (t *Thread) Close() { close(t.work) }
