package policies

import (
	"fmt"
	"path"
	"strings"
)

// maxGlob bounds a path glob, so that matching needs no memory of its own. No
// API that was looked at has paths half as long.
const maxGlob = 512

// MatchPath reports whether glob, one of a rule's Paths, matches the path of a
// request, which must be decoded and cleaned already (a query is no part of
// it). "*" stands for any run of characters but "/", "**" for any run at all.
// It takes time in proportion to the product of both lengths at worst: paths
// come from the guest, and a matcher that backtracks would be a way to stop the
// gateway. A glob over 512 bytes, which validation refuses, matches nothing.
func MatchPath(glob, p string) bool {
	if len(glob) > maxGlob {
		return false
	}
	literal := strings.IndexByte(glob, '*')
	if literal < 0 {
		return glob == p
	}
	if !strings.HasPrefix(p, glob[:literal]) {
		return false
	}
	if glob[literal:] == "**" { // how nearly every rule ends
		return true
	}
	var sets [2]globStates
	sets[0].add(glob, literal)
	now := &sets[0]
	for i := literal; i < len(p); i++ {
		next := &sets[(i-literal+1)%2]
		*next = globStates{}
		now.step(glob, p[i], next)
		now = next
	}
	return now.at[len(glob)]
}

// globStates is the set of places in a glob that the text read so far can have
// led to.
type globStates struct{ at [maxGlob + 1]bool }

// add puts in the place g, and those reached from it by empty matches of stars.
func (s *globStates) add(glob string, g int) {
	for !s.at[g] {
		s.at[g] = true
		switch {
		case strings.HasPrefix(glob[g:], "**"):
			g += 2
		case strings.HasPrefix(glob[g:], "*"):
			g++
		}
	}
}

// step adds to next where c leads from each place in s.
func (s *globStates) step(glob string, c byte, next *globStates) {
	for g := range len(glob) {
		switch {
		case !s.at[g]:
		case strings.HasPrefix(glob[g:], "**"):
			next.add(glob, g)
		case glob[g] == '*':
			if c != '/' {
				next.add(glob, g)
			}
		case glob[g] == c:
			next.add(glob, g+1)
		}
	}
}

// checkGlob refuses globs that could never match a decoded and cleaned path.
func checkGlob(glob string) error {
	switch {
	case len(glob) > maxGlob:
		return fmt.Errorf("it is longer than %d bytes", maxGlob)
	case !strings.HasPrefix(glob, "/") && glob != "**":
		return fmt.Errorf("%q doesn't start with \"/\"", glob)
	case strings.ContainsAny(glob, "?#"):
		return fmt.Errorf("%q holds a query or fragment; paths are compared without them", glob)
	case strings.Contains(glob, "%"):
		return fmt.Errorf("%q holds a percent sign; paths are compared after decoding, so write the character itself", glob)
	case strings.ContainsAny(glob, ";\\") || strings.ContainsFunc(glob, isControl):
		return fmt.Errorf("%q holds a character that is refused in every path, since servers disagree on it", glob)
	case strings.Contains(glob, "***"):
		return fmt.Errorf("%q holds three stars in a row; \"**\" is everything", glob)
	}
	if glob == "**" {
		return nil
	}
	clean := path.Clean(glob)
	if strings.HasSuffix(glob, "/") && clean != "/" {
		clean += "/"
	}
	if clean != glob {
		return fmt.Errorf("%q can't match, since paths are cleaned first; write %q", glob, clean)
	}
	return nil
}
