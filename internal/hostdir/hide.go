//go:build linux

package hostdir

import (
	"fmt"
	"path"
	"strings"
)

// CheckHide says what is wrong with a pattern of Options.Hide.
func CheckHide(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" || pattern != path.Clean(pattern) || path.IsAbs(pattern) || pattern == ".." || strings.HasPrefix(pattern, "../") {
		return fmt.Errorf("%q is no pattern of names: write one such as .env, *.pem or .git/config", pattern)
	}
	return nil
}

// Hides reports whether one of patterns hides the file at a path from the top,
// or a directory above it.
func Hides(patterns []string, file string) bool {
	for ; file != "."; file = path.Dir(file) {
		if hides(patterns, file, path.Base(file)) {
			return true
		}
	}
	return false
}

func hides(patterns []string, whole, name string) bool {
	for _, p := range patterns {
		if match(p, name) || strings.Contains(p, "/") && match(p, whole) {
			return true
		}
		if end, ok := strings.CutPrefix(p, anywhere); ok && matchEnd(end, whole) {
			return true
		}
	}
	return false
}

// anywhere begins a pattern of the end of a path.
const anywhere = "**/"

// matchEnd reports whether the end of a path matches a pattern of as many elements.
func matchEnd(pattern, whole string) bool {
	elements := strings.Split(whole, "/")
	from := len(elements) - strings.Count(pattern, "/") - 1
	return from >= 0 && match(pattern, strings.Join(elements[from:], "/"))
}

// hidden reports whether the guest may not know of name in parent. Where the path can't be told, because the guest has moved
// a directory that is open too far down, a pattern with a slash would match nothing: the error is the answer then.
func (s *tree) hidden(parent *node, name string) (bool, error) {
	if len(s.hide) == 0 {
		return false, nil
	}
	whole, err := s.wholePath(parent, name)
	return err != nil || hides(s.hide, whole, name), err
}

// leadsToHidden reports whether a pattern with a slash names something below
// the directory: under another name it would be shown.
func (s *tree) leadsToHidden(parent *node, name string) bool {
	if len(s.hide) == 0 {
		return false
	}
	whole, err := s.wholePath(parent, name)
	if err != nil {
		return true // as in hidden
	}
	depth := strings.Count(whole, "/") + 1
	for _, p := range s.hide {
		end, ok := strings.CutPrefix(p, anywhere)
		elements := strings.Split(end, "/")
		if ok { // what is above them may have any name
			for n := 1; n < len(elements); n++ {
				if matchEnd(strings.Join(elements[:n], "/"), whole) {
					return true
				}
			}
			continue
		}
		if len(elements) > depth && match(strings.Join(elements[:depth], "/"), whole) {
			return true
		}
	}
	return false
}

func (s *tree) wholePath(parent *node, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	up, err := parent.path()
	if err != nil || up == "" {
		return name, err
	}
	return up + "/" + name, nil
}

func match(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
