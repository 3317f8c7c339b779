package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// manifestFile is in Prefix, and names all files there that any version has written: uninstalling removes these alone, since Prefix may
// be a directory such as /usr/local.
const manifestFile = "msb-node.files"

func (n *Node) manifest() string { return path.Join(n.Prefix, manifestFile) }

// names are the files in Prefix of this version.
func (n *Node) names() (names []string, err error) {
	names = []string{"etc/" + floorFile, "etc/" + settingsFile, "etc/" + restartFile, manifestFile}
	err = walkFiles(n.Parts, func(name string, _ source, _ fs.FileMode) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// recorded are the files that the manifest names; nil if there is none.
func (n *Node) recorded() ([]string, error) {
	text, err := os.ReadFile(n.at(n.manifest()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' })
	for _, name := range names {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s names %q, which is not below it", n.manifest(), name)
		}
	}
	return names, nil
}

// claim refuses a directory without a manifest in which something else lies than this version writes: it is somebody else's, whose
// files would be replaced.
func (n *Node) claim() error {
	recorded, err := n.recorded()
	if err != nil || recorded != nil {
		return err
	}
	names, err := n.names()
	if err != nil {
		return err
	}
	root := n.at(n.Prefix)
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err == nil && !slices.ContainsFunc(names, func(own string) bool { return name == own || unfinished(name, own) }) {
			err = fmt.Errorf("%s has %s, which msb-node didn't make: name a directory of msb's own by --prefix (the chart's value prefix)", n.Prefix, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unfinished tells whether a file is what renameio leaves of another one when it is killed.
func unfinished(name, of string) bool {
	rest, ok := strings.CutPrefix(path.Base(name), "."+path.Base(of))
	return ok && path.Dir(name) == path.Dir(of) && strings.Trim(rest, "0123456789") == ""
}

// record writes the manifest.
func (n *Node) record() error {
	names, err := n.names()
	if err != nil {
		return err
	}
	before, err := n.recorded()
	if err != nil {
		return err
	}
	all := append(names, before...)
	slices.Sort(all)
	_, err = n.write(n.manifest(), []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644)
	return err
}

// removeOwn removes the files of the manifest, and the directories that are empty then.
func (n *Node) removeOwn() error {
	names, err := n.recorded()
	if err != nil {
		return err
	}
	if names == nil { // of a version that wrote none
		if names, err = n.names(); err != nil {
			return err
		}
	}
	slices.SortFunc(names, func(a, b string) int { // the manifest last: it is needed until all else has gone
		switch {
		case a == manifestFile:
			return 1
		case b == manifestFile:
			return -1
		}
		return strings.Compare(a, b)
	})
	dirs := map[string]bool{".": true}
	for _, name := range names {
		left, _ := filepath.Glob(path.Join(n.at(n.Prefix), path.Dir(name), "."+path.Base(name)+"*")) // the pattern is sound
		for _, file := range append(left, n.at(path.Join(n.Prefix, name))) {
			if base := filepath.Base(file); base != path.Base(name) && !unfinished(base, path.Base(name)) {
				continue
			}
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(dirs))) { // what lies in another one first
		switch err := os.Remove(n.at(path.Join(n.Prefix, dir))); {
		case errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST):
			n.Say("%s stays: there are files in it that msb-node didn't make", path.Join(n.Prefix, dir))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}
