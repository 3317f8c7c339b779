package secretproxy

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/secretstore"
)

// state is everything that a reload replaces.
type state struct {
	policy *policies.Policy
	judge  Judge
	table  atomic.Pointer[table] // replaced when a token is minted
}

// table is the secrets at one time; an exchange looks at one table throughout.
type table struct {
	secrets []*entry
	// finder finds the placeholders of all secrets, in any spelling.
	finder *mask.Set
}

// entry is one secret with its placeholder.
type entry struct {
	holder      *secretstore.Holder
	placeholder string
	// parent is the secret whose mint made this one; nil for those of the
	// policy.
	parent *entry
	// foreign is set for a placeholder of another sandbox, of which this one's
	// disk is a copy. There is no value for it and no place where it may stand.
	foreign bool
}

// newState reads the sources. Secrets get their placeholder of kept, where it has their shape, and their
// values are known from here on.
func newState(ctx context.Context, cfg *Config, values *known, policy *policies.Policy, judge Judge, kept map[string]string) (*state, error) {
	if err := CheckFiles(policy); err != nil {
		return nil, err
	}
	holders, err := secretstore.Open(ctx, policy.Secrets, cfg.now)
	if err != nil {
		return nil, err
	}
	placeholders, err := secretstore.Placeholders(holders, kept, cfg.rand)
	// Backwards, so that of two secrets with one value the first gives the placeholder.
	for i := len(holders) - 1; i >= 0 && err == nil; i-- {
		err = holders[i].KeepBy(func(value []byte) (secretstore.Secret, error) {
			return values.keep(value, &policy.Secrets[i], placeholders[i])
		})
	}
	if err != nil {
		for _, h := range holders {
			h.Close()
		}
		return nil, err
	}
	st := &state{policy: policy, judge: judge}
	entries := make([]*entry, 0, len(holders))
	for i, h := range holders {
		entries = append(entries, &entry{holder: h, placeholder: placeholders[i]})
	}
	st.table.Store(newTable(append(entries, foreignEntries(cfg.Parents)...)))
	return st, nil
}

// foreignEntries are in the order of their placeholders.
func foreignEntries(parents map[string]string) []*entry {
	entries := make([]*entry, 0, len(parents))
	for _, placeholder := range slices.Sorted(maps.Keys(parents)) {
		entries = append(entries, &entry{
			holder: secretstore.Fixed(policies.Secret{Name: parents[placeholder]}, secretstore.Secret{}), placeholder: placeholder, foreign: true,
		})
	}
	return entries
}

func newTable(entries []*entry) *table {
	none := &table{finder: mask.Compile(nil, mask.Options{Fold: true})}
	return none.with(entries...)
}

// with returns a table of more secrets. What t has compiled is shared.
func (t *table) with(entries ...*entry) *table {
	needles := make([][]byte, 0, len(entries))
	for _, e := range entries {
		needles = append(needles, []byte(e.placeholder))
	}
	return &table{secrets: slices.Concat(t.secrets, entries), finder: t.finder.Add(needles)}
}

// find returns the secret whose placeholder is in text, nil for none.
func (t *table) find(text string) *entry {
	if h, ok := t.finder.Find(text); ok {
		return t.secrets[h.Needle]
	}
	return nil
}

// placeholders adds those of the policy's own secrets to out, by name.
func (s *state) placeholders(out map[string]string) map[string]string {
	for _, e := range s.table.Load().secrets {
		if e.parent == nil && !e.foreign {
			out[e.holder.Policy().Name] = e.placeholder
		}
	}
	return out
}

func (s *state) byName(name string) *entry {
	secrets := s.table.Load().secrets
	i := slices.IndexFunc(secrets, func(e *entry) bool { return !e.foreign && e.holder.Policy().Name == name })
	if i < 0 {
		return nil
	}
	return secrets[i]
}

// signed reports whether a signature was made for the request, with which the
// real access key's name and session token went to the server.
func (ex *exchange) signed() bool {
	return slices.ContainsFunc(ex.used.list(), func(e *entry) bool { return e.holder.Policy().Kind == policies.SigV4 })
}
