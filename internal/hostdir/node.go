//go:build linux

package hostdir

import (
	"strings"

	"golang.org/x/sys/unix"
)

// maxPathBytes bounds the path of a directory below the top, and with it the
// work of opening one (PATH_MAX).
const maxPathBytes = 4096

// identity tells a file of the host from all others. An inode number that is
// used again comes with another time of birth.
type identity struct {
	device uint64
	inode  uint64
	born   int64
	kind   uint16
}

// node is a file that the guest's kernel knows. Its fields are under Server.mu.
type node struct {
	id       uint64
	is       identity
	parent   *node // nil for the top
	name     string
	lookups  uint64 // what the kernel still holds
	children int    // nodes whose parent this is
	handles  []*handle
	size     uint64  // what the guest believes it is
	resent   bool    // the guest was sent to look again, since it believed in another size
	read     version // what the guest may have cached of the content
}

// place is a name in a directory.
type place struct {
	parent *node
	name   string
}

// path is where the node was last seen, from the top.
func (n *node) path() (string, error) {
	var names []string
	length := 0
	for ; n.parent != nil; n = n.parent {
		if length += len(n.name) + 1; length > maxPathBytes {
			return "", unix.ENAMETOOLONG
		}
		names = append(names, n.name)
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteString(names[i])
		if i > 0 {
			b.WriteByte('/')
		}
	}
	return b.String(), nil
}

// below reports whether n is other or lies in it.
func (n *node) below(other *node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// node finds what the guest's kernel names by a number.
func (s *tree) node(id uint64) (*node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[id]; n != nil {
		return n, nil
	}
	return nil, unix.ESTALE
}

// find is the node that a file at name in parent is, if the guest knows it.
func (s *tree) find(parent *node, name string, is identity) *node {
	if !s.byName {
		return s.known[is]
	}
	if n := s.named[place{parent, name}]; n != nil && n.is.kind == is.kind {
		return n
	}
	return nil
}

// same reports whether info is of the file that n is.
func (s *tree) same(n *node, info *unix.Statx_t) bool {
	if s.byName {
		return info.Mode&unix.S_IFMT == n.is.kind && s.sameMount(info)
	}
	return identityOf(info) == n.is
}

// remember counts one more lookup of the file at name in parent.
func (s *tree) remember(parent *node, name string, is identity) (*node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.find(parent, name, is)
	if n == nil {
		if s.closed || s.count >= s.maxNodes || !s.pool.take(poolNodes, s.maxNodes) {
			return nil, unix.ENFILE
		}
		s.count++
		s.lastID++
		n = &node{id: s.lastID, is: is}
		s.nodes[n.id] = n
		if s.byName {
			s.named[place{parent, strings.Clone(name)}] = n
		} else {
			s.known[is] = n
		}
	}
	if err := s.put(n, parent, name); err != nil {
		s.drop(n)
		return nil, err
	}
	n.lookups++
	return n, nil
}

// put records where a node was seen last. The host may have moved a directory
// into one that was below it: put keeps paths free of cycles. A guest that
// breaks the protocol may have forgotten parent meanwhile: the node would hold
// it, and all above it, uncounted.
func (s *tree) put(n, parent *node, name string) error {
	if n.parent == parent && n.name == name {
		return nil
	}
	if parent.below(n) || parent != s.first && s.nodes[parent.id] != parent {
		return unix.ESTALE
	}
	before := n.parent
	parent.children++
	n.parent, n.name = parent, strings.Clone(name)
	if before != nil {
		before.children--
		s.drop(before)
	}
	return nil
}

// forget takes back lookups.
func (s *tree) forget(id, lookups uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil || n.parent == nil {
		return
	}
	n.lookups -= min(lookups, n.lookups)
	s.drop(n)
}

// drop frees a node that nobody needs, and what it alone needed.
func (s *tree) drop(n *node) {
	for n != nil && s.nodes[n.id] == n && n.id != rootID && n.lookups == 0 && n.children == 0 && len(n.handles) == 0 {
		delete(s.nodes, n.id)
		if s.known[n.is] == n {
			delete(s.known, n.is)
		}
		if at := (place{n.parent, n.name}); s.named[at] == n {
			delete(s.named, at)
		}
		s.retire(n)
		s.count--
		s.pool.give(poolNodes, 1)
		up := n.parent
		if up != nil {
			up.children--
		}
		n = up
	}
}

// removed makes sure that a new file with the same inode is another node.
func (s *tree) removed(is identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, is)
	if n := s.known[is]; n != nil {
		delete(s.known, is)
		s.retire(n)
	}
}
