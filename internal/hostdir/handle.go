//go:build linux

package hostdir

import (
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// handle is a file or directory that the guest has open. mu is held for reading
// while its descriptor is used, so that no other file has the number by then.
type handle struct {
	id   uint64
	node *node
	file *os.File
	mu   sync.RWMutex
	done bool // under mu: the descriptor is closed
	// quiet means that the guest's kernel sends no message for each close of the file, so that locks last until the
	// handle is released.
	quiet bool
}

func (h *handle) fd() int { return int(h.file.Fd()) }

// newHandle takes over f.
func (s *files) newHandle(n *node, f *os.File, quiet bool) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[n.id] != n {
		_ = f.Close() // nothing was done with it
		return nil, unix.ESTALE
	}
	if s.closed || len(s.handles) >= s.maxHandles || !s.pool.take(poolHandles, s.maxHandles) {
		_ = f.Close() // the same
		return nil, unix.EMFILE
	}
	s.lastHandle++
	h := &handle{id: s.lastHandle, node: n, file: f, quiet: quiet}
	s.handles[h.id] = h
	n.handles = append(n.handles, h)
	return h, nil
}

// handle finds an open file of n; its mu is held for reading then.
func (s *files) handle(id uint64, n *node) (*handle, error) {
	s.mu.Lock()
	h := s.handles[id]
	s.mu.Unlock()
	if h == nil || h.node != n {
		return nil, unix.EBADF
	}
	h.mu.RLock()
	if h.done {
		h.mu.RUnlock()
		return nil, unix.EBADF
	}
	return h, nil
}

// handleOf is any open file of n, with its mu held for reading; nil for none.
func (s *files) handleOf(n *node) *handle {
	s.mu.Lock()
	all := slices.Clone(n.handles)
	s.mu.Unlock()
	for _, h := range all {
		h.mu.RLock()
		if !h.done {
			return h
		}
		h.mu.RUnlock()
	}
	return nil
}

func (s *files) release(r request, out []byte) ([]byte, error) {
	a := args{rest: r.body}
	fh := a.u64()
	s.mu.Lock()
	h := s.handles[fh]
	if h != nil && h.node.id == r.node {
		delete(s.handles, fh)
		s.pool.give(poolHandles, 1)
		h.node.handles = slices.DeleteFunc(h.node.handles, func(o *handle) bool { return o == h })
		s.drop(h.node)
	} else {
		h = nil
	}
	s.mu.Unlock()
	if h == nil {
		return nil, unix.EBADF
	}
	return out, h.close()
}

func (h *handle) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return nil
	}
	h.done = true
	return h.file.Close()
}
