package mask

import "sync"

// scans is working memory, reused across headers.
var scans = sync.Pool{New: func() any { return &scan{whole: true} }}

// TooShort reports that no needle has room in a text of that length: undoing escapes makes none longer.
func (s *Set) TooShort(n int) bool {
	return s.Empty() || n < s.plain.minLen && (s.folded == nil || n < s.folded.minLen)
}

// Find returns the first needle in text, in any spelling.
func (s *Set) Find(text string) (Hit, bool) {
	if s.TooShort(len(text)) {
		return Hit{}, false
	}
	c, _ := scans.Get().(*scan)
	defer scans.Put(c)
	s.run(c, []byte(text))
	if len(c.hits) == 0 {
		return Hit{}, false
	}
	return c.hits[0], true
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
