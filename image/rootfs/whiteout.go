package rootfs

import "strings"

// whiteout removes a name, or with opaque everything in a directory, of the layers below.
type whiteout struct {
	name   string
	parent []string
	base   string
	opaque bool
}

// addWhiteout takes entries whose name is a marker. Handled means that the entry
// is no file of the image.
func (l *Layer) addWhiteout(name string, parts []string) (handled bool, err error) {
	if len(parts) == 0 {
		return false, nil
	}
	last := len(parts) - 1
	for _, p := range parts[:last] {
		if strings.HasPrefix(p, metaPrefix) {
			return true, nil
		}
		if strings.HasPrefix(p, whiteoutPrefix) {
			return true, hostile(name, "a whiteout marker can't be a directory")
		}
	}
	base := parts[last]
	removed, ok := strings.CutPrefix(base, whiteoutPrefix)
	switch {
	case !ok:
		return false, nil
	case base == opaqueMarker:
		l.whiteouts = append(l.whiteouts, whiteout{name: name, parent: parts[:last], opaque: true})
	case strings.HasPrefix(base, metaPrefix):
	case removed == "" || removed == "." || removed == "..":
		return true, hostile(name, "the whiteout names no file of its directory")
	default:
		l.whiteouts = append(l.whiteouts, whiteout{name: name, parent: parts[:last], base: removed})
	}
	return true, nil
}

// applyWhiteouts comes before any entry of the same layer: a whiteout hides what
// is below its layer, never what is in it.
func (t *Tree) applyWhiteouts(l *Layer) error {
	for _, w := range l.whiteouts {
		dir, err := t.walkPlain(w)
		if err != nil {
			return err
		}
		if dir == nil {
			continue
		}
		if w.opaque {
			dir.children = map[string]*node{}
			continue
		}
		delete(dir.children, w.base)
	}
	return nil
}

// walkPlain finds the directory of a whiteout without following links: a marker that
// reaches through a link deletes in a place that its name does not say, and no
// builder writes one. Nil when the directory is not there.
func (t *Tree) walkPlain(w whiteout) (*node, error) {
	dir := t.root
	for _, p := range w.parent {
		next := dir.children[p]
		if next == nil {
			return nil, nil
		}
		switch next.kind {
		case kindDir:
			dir = next
		case kindSymlink:
			return nil, hostile(w.name, "the whiteout reaches through the link %q", p)
		case kindFile, kindCharDevice, kindBlockDevice, kindFIFO:
			return nil, nil
		}
	}
	return dir, nil
}
