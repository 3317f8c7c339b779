//go:build linux

package workload

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Root is where a Thread stands, for work that would hold the thread up.
type Root struct {
	// namespace is the thread's mount namespace as this process sees it: the
	// workload can't unmount it, as it can the /proc of its own root.
	namespace string
}

// root returns where t stands when Run is called.
func (t *Thread) root() *Root {
	var tid int
	t.Do(func() { tid = unix.Gettid() })
	return &Root{namespace: fmt.Sprintf("/proc/self/task/%d/ns/mnt", tid)}
}

// Root is where the spawner's processes start.
func (s *Spawner) Root() *Root { return s.thread.root() }

// Run runs f in the root, on an OS thread that ends with it. f must not start
// goroutines that use paths: they would stand elsewhere.
func (r *Root) Run(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with this goroutine
		err := r.enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (r *Root) enter() error {
	ns, err := os.Open(r.namespace)
	if err != nil {
		return fmt.Errorf("find the workload's root: %w", err)
	}
	defer func() { _ = ns.Close() }()
	there, err := ns.Stat()
	if err != nil {
		return fmt.Errorf("look at the workload's root: %w", err)
	}
	if here, err := os.Stat("/proc/thread-self/ns/mnt"); err == nil && os.SameFile(here, there) {
		return nil // tests run in the agent's own root
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separate the thread's root: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the workload's root: %w", err)
	}
	return nil
}
