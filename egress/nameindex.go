package egress

import (
	"strings"

	"github.com/msb-project/msb/hostname"
)

// nameIndex finds what is filed under a name in time that grows with its
// labels, not with the number of entries: a tree of labels from the right, kept
// as one map from suffix to node. A walk ends at the first suffix that leads
// nowhere.
type nameIndex[T any] struct {
	nodes map[string]*nameNode[T]
	any   []T // filed under "*"
	size  int
}

type nameNode[T any] struct {
	exact []T // filed under this name
	below []T // filed under "*." and this name
}

// add files v under p.
func (x *nameIndex[T]) add(p hostname.Pattern, v T) {
	if p.IsZero() {
		return
	}
	x.size++
	if p.Any() {
		x.any = append(x.any, v)
		return
	}
	if x.nodes == nil {
		x.nodes = make(map[string]*nameNode[T])
	}
	base := p.Base().String()
	for i := len(base); i > 0; {
		i = strings.LastIndexByte(base[:i], '.')
		if x.nodes[base[i+1:]] == nil {
			x.nodes[base[i+1:]] = &nameNode[T]{}
		}
	}
	n := x.nodes[base]
	if p.Wildcard() {
		n.below = append(n.below, v)
	} else {
		n.exact = append(n.exact, v)
	}
}

// each calls yield with everything filed under a pattern that matches n; exact
// says that the pattern is the name itself, not a wildcard. It stops when yield
// returns false.
func (x *nameIndex[T]) each(n hostname.Name, yield func(v T, exact bool) bool) {
	if n.IsZero() {
		return
	}
	for _, v := range x.any {
		if !yield(v, false) {
			return
		}
	}
	x.eachNamed(n, yield)
}

// eachNamed is each without what is filed under "*".
func (x *nameIndex[T]) eachNamed(n hostname.Name, yield func(v T, exact bool) bool) {
	s := n.String()
	for i := len(s); i > 0 && len(x.nodes) > 0; {
		i = strings.LastIndexByte(s[:i], '.')
		node := x.nodes[s[i+1:]]
		if node == nil {
			return
		}
		found := node.below
		if i < 0 {
			found = node.exact
		}
		for _, v := range found {
			if !yield(v, i < 0) {
				return
			}
		}
	}
}

// has reports whether anything is filed under a pattern that matches n.
func (x *nameIndex[T]) has(n hostname.Name) bool {
	found := false
	x.each(n, func(T, bool) bool { found = true; return false })
	return found
}
