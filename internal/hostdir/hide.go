//go:build linux

package hostdir

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/foldname"
)

// CheckHide says what is wrong with a pattern of Options.Hide.
func CheckHide(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" || pattern != path.Clean(pattern) || path.IsAbs(pattern) || pattern == ".." || strings.HasPrefix(pattern, "../") {
		return fmt.Errorf("%q is no pattern of names: write one such as .env, *.pem or .git/config", pattern)
	}
	return nil
}

// Hiding holds patterns of hidden names: as they are written, and folded for file systems on which .ENV is .env.
type Hiding struct{ exact, folded []string }

// NewHiding takes patterns that CheckHide lets through.
func NewHiding(patterns []string) Hiding {
	h := Hiding{exact: patterns}
	for _, p := range patterns {
		elements := strings.Split(p, "/")
		for i, e := range elements {
			if strings.ContainsAny(e, `*?[\`) { // of which nothing may be cut off
				elements[i] = foldname.Case(e)
			} else {
				elements[i] = foldname.Element(e)
			}
		}
		h.folded = append(h.folded, strings.Join(elements, "/"))
	}
	return h
}

// Hides reports whether a pattern hides the file at a path from the top, or a directory above it.
func (h Hiding) Hides(file string) bool {
	for ; file != "."; file = path.Dir(file) {
		if h.hides(file, path.Base(file)) {
			return true
		}
	}
	return false
}

func (h Hiding) hides(whole, name string) bool {
	return len(h.exact) > 0 && (matchAny(h.exact, whole, name) || matchAny(h.folded, foldname.Path(whole), foldname.Element(name)))
}

// leadsTo reports whether a pattern with a slash names something below a directory.
func (h Hiding) leadsTo(whole string) bool {
	return len(h.exact) > 0 && (matchAbove(h.exact, whole) || matchAbove(h.folded, foldname.Path(whole)))
}

func matchAny(patterns []string, whole, name string) bool {
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

func matchAbove(patterns []string, whole string) bool {
	depth := strings.Count(whole, "/") + 1
	for _, p := range patterns {
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
	if len(s.hide.exact) == 0 {
		return false, nil
	}
	whole, err := s.wholePath(parent, name)
	return err != nil || s.shortNames && shortName(name) || s.hide.hides(whole, name), err
}

// leadsToHidden reports whether a pattern with a slash names something below
// the directory: under another name it would be shown.
func (s *tree) leadsToHidden(parent *node, name string) bool {
	if len(s.hide.exact) == 0 {
		return false
	}
	whole, err := s.wholePath(parent, name)
	return err != nil || s.hide.leadsTo(whole) // as in hidden
}

// shortName reports whether a name looks like the second one that FAT and NTFS give a file: ENV~1 is .env.
func shortName(name string) bool {
	base, end, _ := strings.Cut(name, ".")
	number := strings.TrimRight(base, "0123456789")
	return len(base) <= 8 && len(end) <= 3 && !strings.Contains(end, ".") && len(number) < len(base) && len(number) > 1 && strings.HasSuffix(number, "~")
}

// hasShortNames reports whether files of a file system may have such names. That of another machine, or of a program, may be
// any.
func hasShortNames(kind uint32) bool {
	const ntfs, ntfs3, cifs, smb2 = 0x5346544e, 0x7366746e, 0xff534d42, 0xfe534d42
	switch kind {
	case unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, ntfs, ntfs3, cifs, smb2, unix.SMB_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC:
		return true
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
