package secretproxy

import (
	"slices"

	"github.com/msb-project/msb/secretproxy/secret"
)

// maxGone bounds the tokens that no longer work but are still masked, and by
// itself the secrets that a reload took out of the policy, so that a guest
// which asks for tokens doesn't make one of those forgotten (invariant 11). At
// the bound the oldest is overwritten.
const maxGone = 64

// knownAs returns the secret of that name, be it gone, or nil.
func (t *table) knownAs(name string) *entry {
	for _, e := range t.known {
		if e.holder.Policy().Name == name {
			return e
		}
	}
	return nil
}

// bounded overwrites and drops the oldest of gone above maxGone, tokens and
// secrets of the policy each for themselves. An exchange that began when such a
// token still worked, maxGone tokens ago, has its next use of it refused.
func bounded(gone []*entry) []*entry {
	isToken := func(e *entry) bool { return e.parent != nil }
	isSecret := func(e *entry) bool { return e.parent == nil }
	for _, kind := range []func(*entry) bool{isToken, isSecret} {
		for count(gone, kind) > maxGone {
			i := slices.IndexFunc(gone, kind)
			gone[i].holder.Close()
			gone = slices.Delete(gone, i, i+1)
		}
	}
	return gone
}

// without takes a token that works again out of gone, so that it becomes the
// placeholder that works, and no other.
func without(gone []*entry, token string) []*entry {
	return slices.DeleteFunc(gone, func(e *entry) bool {
		same := e.parent != nil && string(e.holder.Known()[0].Reveal()) == token
		if same {
			e.holder.Close()
		}
		return same
	})
}

func count(entries []*entry, kind func(*entry) bool) int {
	n := 0
	for _, e := range entries {
		if kind(e) {
			n++
		}
	}
	return n
}

// departed returns what is only masked after a reload: what was before, and
// what is not among entries any more. Values are copied, since the old state
// overwrites its own.
func (s *state) departed(entries []*entry) []*entry {
	s.mu.Lock() // nothing is overwritten meanwhile
	defer s.mu.Unlock()
	old := s.table.Load()
	var out []*entry
	for _, e := range slices.Concat(old.gone, old.secrets) {
		stays := func(n *entry) bool { return n.holder.Policy().Name == e.holder.Policy().Name }
		if slices.ContainsFunc(entries, stays) {
			continue
		}
		values := e.holder.Known()
		if values[0].Len() == 0 {
			continue
		}
		holder := secret.Fixed(*e.holder.Policy(), values[0].Reveal())
		holder.Remember(values[1:])
		out = append(out, &entry{holder: holder, placeholder: e.placeholder, parent: e.parent})
	}
	return bounded(out)
}
