package mask

// stage is a set that is searched in what the set before it made of a text. A
// guest may have chosen its needles, such as the tokens of a server that shows
// what it was sent (attack: a needle `token":"ghp_R` overlaps a value and is found
// only if the guess is right). The set before it is run as if there were no other,
// so what comes out depends on no more of its values than what a guest without
// needles of its own is sent.
type stage struct {
	set     *Set
	replace Replacer
}

// Then returns a Set whose output is searched for the needles of later, which r
// replaces. Needles of later are numbered by themselves.
func (s *Set) Then(later *Set, r Replacer) *Set {
	if later.Empty() {
		return s
	}
	next := *s
	next.later = &stage{later, r}
	if next.shortest == 0 || later.shortest < next.shortest {
		next.shortest = later.shortest
	}
	return &next
}

// advance takes the first n bytes of room as the next piece.
func (st *Stream) advance(dst []byte, n int, final bool) ([]byte, error) {
	if st.latest != nil {
		st.set, st.replace = st.latest()
		defer st.unfollow()
	}
	later := st.set.later
	if later == nil {
		return st.search(dst, n, final)
	}
	if st.inner == nil {
		st.inner = NewStream(nil, nil, st.live)
		st.inner.answer, st.inner.isInner = st.answer, true
	}
	var err error
	if st.mid, err = st.search(st.mid[:0], n, final); err != nil {
		return dst, err
	}
	in := st.inner
	in.set, in.replace, in.slides = later.set, later.replace, st.slides
	defer in.unfollow()
	begin := len(dst)
	if dst, err = in.Push(dst, st.mid, final); err != nil {
		return dst[:begin], err // how far it came is up to the needles
	}
	return dst, nil
}

// each calls do with the stream and those of the stages behind it.
func (st *Stream) each(do func(*Stream)) {
	for ; st != nil; st = st.inner {
		do(st)
	}
}
