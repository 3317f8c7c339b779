package rootfs

import (
	"fmt"
	"strings"
)

// Tree is a root directory in memory.
type Tree struct {
	root   *node
	budget *Budget
	steps  int64
}

// NewTree is an empty root, owned by root, mode 0755. Directories that entries imply
// are charged to the budget of the layers: a name of 4 KiB implies 2,000.
func NewTree(budget *Budget) *Tree { return &Tree{root: newDir(), budget: budget} }

// maxSteps bounds the components that are looked up for one image: names that run
// through chains of long links cost 80,000 each, and an image may hold millions.
const maxSteps = 1 << 30

// maxLinks is how many links are followed for one path; Linux's MAXSYMLINKS.
const maxLinks = 40

// reserved are names of the root that belong to the machinery inside the guest.
// libkrun's init reads a configuration from the root, whose environment would
// reach the first process (LD_PRELOAD); agentd keeps its files under /.msb.
var reserved = []string{".msb", ".krun_config.json", "init.krun"}

// Apply puts a layer on top of the tree.
func (t *Tree) Apply(l *Layer) error {
	if err := t.applyWhiteouts(l); err != nil {
		return err
	}
	for i := range l.entries {
		if err := t.applyEntry(&l.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// Mask removes what an image may not bring; call it when all layers are applied.
func (t *Tree) Mask() {
	for _, name := range reserved {
		delete(t.root.children, name)
	}
}

func (t *Tree) applyEntry(e *entry) error {
	if len(e.parts) == 0 {
		if e.node == nil || e.node.kind != kindDir {
			return hostile(e.name, "the root of the image can only be a directory")
		}
		t.root.setMetadata(e.node)
		return nil
	}
	dir, err := t.resolve(e.name, e.parts[:len(e.parts)-1], true)
	if err != nil {
		return err
	}
	base := e.parts[len(e.parts)-1]
	if e.node == nil {
		return t.applyHardLink(e, dir, base)
	}
	if old := dir.children[base]; old != nil && old.kind == kindDir && e.node.kind == kindDir {
		old.setMetadata(e.node)
		return nil
	}
	dir.children[base] = e.node
	return nil
}

func (t *Tree) applyHardLink(e *entry, dir *node, base string) error {
	if len(e.link) == 0 {
		return hostile(e.name, "it is a hard link to the root directory")
	}
	from, err := t.resolve(e.name, e.link[:len(e.link)-1], false)
	if err != nil {
		return err
	}
	var target *node
	if from != nil {
		target = from.children[e.link[len(e.link)-1]]
	}
	switch {
	case target == nil:
		return hostile(e.name, "its hard link target %s does not exist in the image", quoteName(e.linkName))
	case target.kind == kindDir:
		return hostile(e.name, "its hard link target %s is a directory", quoteName(e.linkName))
	}
	dir.children[base] = target
	return nil
}

func (n *node) setMetadata(from *node) {
	n.mode, n.uid, n.gid, n.modTime, n.xattrs = from.mode, from.uid, from.gid, from.modTime, from.xattrs
}

// resolve finds the directory that parts mean inside the root. Links are followed,
// absolute ones from the root, and ".." stops at the root, as a process whose
// root this is would see it. Missing directories are made, or answered with nil.
func (t *Tree) resolve(name string, parts []string, create bool) (*node, error) {
	stack := []*node{t.root}
	// todo is a stack of components, the next one last.
	todo := make([]string, 0, len(parts))
	for i := len(parts) - 1; i >= 0; i-- {
		todo = append(todo, parts[i])
	}
	links := 0
	for len(todo) > 0 {
		if t.steps++; t.steps > maxSteps {
			return nil, fmt.Errorf("%w: resolving names takes more than %d steps (at %s)", ErrLimit, int64(maxSteps), quoteName(name))
		}
		part := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if part == ".." {
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		dir := stack[len(stack)-1]
		next := dir.children[part]
		if next == nil {
			if !create {
				return nil, nil
			}
			if len(part) > maxNameBytes {
				return nil, hostile(name, "a link on its path names a component longer than %d bytes", maxNameBytes)
			}
			if err := t.budget.addEntry(name, len(part)); err != nil {
				return nil, err
			}
			next = newDir()
			dir.children[part] = next
		}
		switch next.kind {
		case kindDir:
			stack = append(stack, next)
			if len(stack) > maxPathBytes/2 {
				return nil, hostile(name, "links make its path longer than %d bytes", maxPathBytes)
			}
		case kindSymlink:
			if links++; links > maxLinks {
				return nil, hostile(name, "more than %d links on its path: a loop", maxLinks)
			}
			if strings.HasPrefix(next.target, "/") {
				stack = stack[:1]
			}
			todo = pushTarget(todo, next.target)
		case kindFile, kindCharDevice, kindBlockDevice, kindFIFO:
			return nil, hostile(name, "its parent %q is not a directory", part)
		}
	}
	return stack[len(stack)-1], nil
}

// pushTarget puts the components of a link's target on the stack.
func pushTarget(todo []string, target string) []string {
	parts := strings.Split(target, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i] != "" && parts[i] != "." {
			todo = append(todo, parts[i])
		}
	}
	return todo
}
