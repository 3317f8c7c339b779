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

// New returns the regular expression of that text. Its first use panics if it is invalid.
func New(text string) *Regexp {
	return &Regexp{text, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// MatchString reports whether s has a match.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// Get is the compiled expression.
func (r *Regexp) Get() *regexp.Regexp { return r.compiled() }

// String is the text.
func (r *Regexp) String() string { return r.text }
