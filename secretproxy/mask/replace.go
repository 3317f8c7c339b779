package mask

import "sync"

// scans is working memory, reused across headers.
var scans = sync.Pool{New: func() any { return &scan{whole: true} }}

// TooShort reports that no needle has room in a text of that length: undoing escapes makes none longer.
func (s *Set) TooShort(n int) bool {
	return s.Empty() || n < s.plain.minLen && (s.folded == nil || n < s.folded.minLen) && (s.later == nil || s.later.set.TooShort(n))
}

// Find returns the first needle in text, in any spelling; of a later stage, if
// there is none of the first.
func (s *Set) Find(text string) (Hit, bool) {
	if s.TooShort(len(text)) {
		return Hit{}, false
	}
	c, _ := scans.Get().(*scan)
	defer scans.Put(c)
	s.run(c, []byte(text))
	switch {
	case len(c.hits) > 0:
		return c.hits[0], true
	case s.later != nil:
		return s.later.set.Find(text)
	}
	return Hit{}, false
}

// Replace returns text with every needle replaced, and whether there was one.
func (s *Set) Replace(text string, r Replacer) (string, bool, error) {
	if s.TooShort(len(text)) {
		return text, false, nil
	}
	out, hits, err := s.ReplaceBytes([]byte(text), r)
	if hits == 0 || err != nil {
		return text, hits > 0, err
	}
	return string(out), true, nil
}

// ReplaceBytes returns data with every needle replaced, and how many there
// were; data itself if there was none.
func (s *Set) ReplaceBytes(data []byte, r Replacer) ([]byte, int, error) {
	if s.TooShort(len(data)) {
		return data, 0, nil
	}
	out, hits, err := s.replaceOwn(data, r)
	if err != nil || s.later == nil {
		return out, hits, err
	}
	out, more, err := s.later.set.ReplaceBytes(out, s.later.replace)
	return out, hits + more, err
}

// replaceOwn replaces the needles of the first stage.
func (s *Set) replaceOwn(data []byte, r Replacer) ([]byte, int, error) {
	c, _ := scans.Get().(*scan)
	defer scans.Put(c)
	s.run(c, data)
	if len(c.hits) == 0 {
		return data, 0, nil
	}
	var out []byte
	done := 0
	for _, h := range c.hits {
		replacement, err := r(h)
		if err != nil {
			return nil, len(c.hits), err
		}
		out = append(append(out, data[done:h.start]...), replacement...)
		done = h.end
	}
	return append(out, data[done:]...), len(c.hits), nil
}
