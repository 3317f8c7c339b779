package secretproxy

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/secret"
)

// state is everything that a reload replaces.
type state struct {
	policy *policies.Policy
	judge  Judge
	table  atomic.Pointer[table] // replaced when a token is minted
	masker atomic.Pointer[masker]

	mu      sync.Mutex
	users   int  // exchanges that read it
	retired bool // replaced or at its end; the last user closes it
}

// table is the secrets at one time; an exchange looks at one table throughout.
type table struct {
	secrets []*entry
	// gone are those that are only masked any more, the oldest first.
	gone []*entry
	// known are all whose values are masked: a server may show a value long
	// after it stopped working here.
	known []*entry
	// finder finds the placeholders of all secrets, in any spelling.
	finder *mask.Set
}

// entry is one secret with its placeholder.
type entry struct {
	holder      *secret.Holder
	placeholder string
	// parent is the secret whose mint made this one; nil for those of the
	// policy.
	parent *entry
}

// masker takes the values of all secrets out of responses. It is compiled anew
// when a value changes.
type masker struct {
	table      *table
	generation uint64
	set        *mask.Set
	replace    mask.Replacer
}

// newState reads the sources. From old, which may be nil, it takes the
// placeholders of secrets that keep their name and shape, and for masking the
// values of all.
func newState(ctx context.Context, cfg *Config, policy *policies.Policy, judge Judge, old *state) (*state, error) {
	if err := CheckFiles(policy); err != nil {
		return nil, err
	}
	holders, err := secret.Open(ctx, policy.Secrets, cfg.now)
	if err != nil {
		return nil, err
	}
	fresh, err := secret.Placeholders(holders, cfg.Placeholders, cfg.rand)
	if err != nil {
		for _, h := range holders {
			h.Close()
		}
		return nil, err
	}
	st := &state{policy: policy, judge: judge}
	var entries []*entry
	for i, h := range holders {
		e := &entry{holder: h, placeholder: fresh[i]}
		if old != nil {
			if was := old.table.Load().knownAs(h.Policy().Name); was != nil {
				h.Remember(was.holder.Known())
				if was.holder.Policy().Placeholder == h.Policy().Placeholder {
					e.placeholder = was.placeholder
				}
			}
		}
		entries = append(entries, e)
	}
	var gone []*entry
	if old != nil {
		entries = append(entries, old.inherited(entries)...)
		gone = old.departed(entries)
	}
	st.table.Store(newTable(entries, gone))
	return st, nil
}

func newTable(entries, gone []*entry) *table {
	needles := make([][]byte, 0, len(entries))
	for _, e := range entries {
		needles = append(needles, []byte(e.placeholder))
	}
	return &table{secrets: entries, gone: gone, known: slices.Concat(entries, gone), finder: mask.Compile(needles, mask.Options{Fold: true})}
}

func (s *state) byName(name string) *entry {
	secrets := s.table.Load().secrets
	i := slices.IndexFunc(secrets, func(e *entry) bool { return e.holder.Policy().Name == name })
	if i < 0 {
		return nil
	}
	return secrets[i]
}

// holdsValues reports whether some secret's value is put into requests, so that
// answers must be masked. A signed request carries no value that an answer
// could repeat.
func (s *state) holdsValues() bool {
	return slices.ContainsFunc(s.table.Load().known, func(e *entry) bool {
		return e.holder.Policy().Kind != policies.SigV4
	})
}

// currentMasker returns what masks answers. It is asked for when an answer
// came, after every value that the request carries was read: a value that was
// rotated in between is known to it. All values are masked, not only those of
// the host: a server may hold another one from elsewhere.
func (s *state) currentMasker() *masker {
	tab, generation := s.table.Load(), uint64(0)
	for _, e := range tab.known {
		generation += e.holder.Generation()
	}
	if m := s.masker.Load(); m != nil && m.table == tab && m.generation == generation {
		return m
	}
	var needles, replacements [][]byte
	for _, e := range tab.known {
		for _, known := range e.holder.Known() {
			for _, value := range valuesOf(e, known) {
				needles = append(needles, value)
				replacements = append(replacements, []byte(e.placeholder))
			}
		}
	}
	m := &masker{tab, generation, mask.Compile(needles, mask.Options{}), mask.ReplaceBy(replacements)}
	s.masker.Store(m)
	return m
}

// valuesOf is what a secret's source holds that an answer may not: of AWS
// credentials, each of their parts.
func valuesOf(e *entry, known secret.Secret) [][]byte {
	if e.holder.Policy().Kind != policies.SigV4 {
		return [][]byte{known.Reveal()}
	}
	keys, err := parseAWSCredentials(known.Reveal())
	if err != nil {
		return nil // nothing is signed with them either
	}
	return [][]byte{[]byte(keys.SecretAccessKey), []byte(keys.SessionToken), []byte(keys.AccessKeyID)}
}

// signed reports whether a signature was made for the request, with which the
// real access key's name and session token went to the server.
func (ex *exchange) signed() bool {
	return slices.ContainsFunc(ex.used, func(e *entry) bool { return e.holder.Policy().Kind == policies.SigV4 })
}

// enter keeps the values readable until leave; false means that the state was
// replaced and closed meanwhile.
func (s *state) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired && s.users == 0 {
		return false
	}
	s.users++
	return true
}

func (s *state) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.closeIfUnused()
}

// retire overwrites the values once no exchange reads them any more, so that a
// reload in the middle of a request leaves that request whole.
func (s *state) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.closeIfUnused()
}

// closeIfUnused overwrites the values. The caller holds mu.
func (s *state) closeIfUnused() {
	if !s.retired || s.users > 0 {
		return
	}
	for _, e := range s.table.Load().known {
		e.holder.Close()
	}
}
