package grants

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/msb-project/msb/policies"
)

// trees are the directories that whoever wrote a policy may be able to write to:
// the one that the file is in, and the git repository around it. The outermost
// repository counts: a .git that somebody puts below it makes a tree no smaller.
// They are real paths, none below another.
type trees []string

// treesOf returns the trees of the policy file: of its path and, where that is a
// link, of where it leads. A policy that came from no file has none.
func treesOf(p *policies.Policy) trees {
	if p.Path == "" {
		return nil
	}
	var t trees
	for _, dir := range []string{filepath.Dir(p.Path), filepath.Dir(realOf(p.Path))} {
		t = append(t, repository(realOf(dir)))
	}
	slices.Sort(t)
	t = slices.Compact(t)
	if len(t) == 2 && (trees{t[0]}).hold(t[1]) { // sorted: the shorter one is first
		t = t[:1]
	}
	return t
}

// repository returns the outermost directory around dir that holds a .git, or dir.
func repository(dir string) string {
	top := dir
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			top = d
		}
		if d == filepath.Dir(d) {
			return top
		}
	}
}

// hold reports whether a path, taken as it is written, is one of the trees or
// below. Directories are compared by identity, so that a second mount of a tree
// is known too.
func (t trees) hold(path string) bool {
	for d := filepath.Clean(path); ; d = filepath.Dir(d) {
		if t.are(d) {
			return true
		}
		if d == filepath.Dir(d) {
			return false
		}
	}
}

// Within reports whether path, taken as it is written, is the directory dir or lies in it.
func Within(dir, path string) bool { return trees{dir}.hold(path) }

// below reports whether one of the trees is below the directory at path.
func (t trees) below(path string) bool {
	for _, tree := range t {
		for d := tree; ; d = filepath.Dir(d) {
			if same(d, path) {
				return true
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return false
}

func (t trees) are(path string) bool {
	return slices.ContainsFunc(t, func(tree string) bool { return same(tree, path) })
}

func same(a, b string) bool {
	if a == b {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
