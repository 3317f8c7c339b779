// Package lazyregexp compiles regular expressions when they are first used: those of the whole program would take a third of
// the start of msb, and a command needs few.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression.
type Regexp struct {
	text     string
	compiled func() *regexp.Regexp
}

// New returns the regular expression of that text. Its first use panics if it is none.
func New(text string) *Regexp {
	return &Regexp{text, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// MatchString reports whether s has a match.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// Get is the compiled expression.
func (r *Regexp) Get() *regexp.Regexp { return r.compiled() }

// String is the text.
func (r *Regexp) String() string { return r.text }
