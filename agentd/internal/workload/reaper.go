//go:build linux

package workload

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper is the one owner of wait4 in this process. As PID 1 it also takes in
// the orphans, which os/exec's own waiting would race with.
type Reaper struct {
	orphans bool
	sigs    chan os.Signal
	stop    chan struct{}
	done    chan struct{}

	mu       sync.Mutex
	children map[int]*child
}

// child is a started process that is not reaped yet, or its status.
type child struct {
	PID    int
	reaper *Reaper
	done   chan struct{}
	status syscall.WaitStatus
}

// NewReaper starts reaping. With orphans it reaps every child of this process,
// as only PID 1 may: anywhere else it would steal from os/exec.
func NewReaper(orphans bool) *Reaper {
	r := &Reaper{
		orphans:  orphans,
		sigs:     make(chan os.Signal, 1),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		children: make(map[int]*child),
	}
	signal.Notify(r.sigs, unix.SIGCHLD)
	go r.run()
	return r
}

// Close stops reaping.
func (r *Reaper) Close() {
	signal.Stop(r.sigs)
	close(r.stop)
	<-r.done
}

// start calls start, which forks, and takes charge of the process. Nothing is
// reaped meanwhile: the process can't be gone before it is known here, and
// ForkExec's own wait for a child whose exec failed finds it.
func (r *Reaper) start(start func() (int, error)) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := start()
	if err != nil {
		return nil, err
	}
	c := &child{PID: pid, reaper: r, done: make(chan struct{})}
	r.children[pid] = c
	return c, nil
}

func (r *Reaper) run() {
	defer close(r.done)
	for {
		select {
		case <-r.stop:
			return
		case <-r.sigs:
			r.reap()
		}
	}
}

func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.orphans {
		for pid := range r.children {
			r.reapOne(pid)
		}
		return
	}
	for r.reapOne(-1) {
	}
}

// reapOne reaps pid, or any child for -1, and tells whether there was one.
func (r *Reaper) reapOne(pid int) bool {
	var ws syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return false
		}
		if c := r.children[got]; c != nil {
			delete(r.children, got)
			c.status = ws
			close(c.done)
		}
		return true
	}
}

// Done is closed when the process has ended and is reaped.
func (c *child) Done() <-chan struct{} { return c.done }

// Status is how the process ended; valid once Done is closed.
func (c *child) Status() syscall.WaitStatus { return c.status }

// SignalGroup sends sig to the process's group. Once the process is reaped it
// does nothing: its number may be another's by then.
func (c *child) SignalGroup(sig syscall.Signal) {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if c.reaper.children[c.PID] == c {
		_ = syscall.Kill(-c.PID, sig) // it may have no process left but a zombie
	}
}
