package secretproxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
	"github.com/msb-project/msb/secretproxy/secret"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

const (
	// maxKnown bounds the values that one sandbox has in its life: a thousand tokens of the usual length.
	// The guest causes many of them, by grants and by answers of status 401 (invariant 11).
	maxKnown = 1 << 20
	// knownCost is added to each value's length.
	knownCost = 512
	// needleCost is what the spellings of a value take in a compiled set, measured, and in the next one while that
	// replaces it.
	needleCost = 20 << 10
)

// errKnownFull refuses a value that could not be kept.
var errKnownFull = errors.New("the sandbox has had as many secret values as are kept, all of which are still masked; start it again")

// known is every value that the sandbox has had, with the placeholder that stands for it. None is forgotten
// while the sandbox lives: a server may show a value long after it stopped working, and what is forgotten
// at a bound is forgotten when the guest wants it.
type known struct {
	mu      sync.Mutex
	values  []keptValue
	at      map[[sha256.Size]byte]int
	size    int
	limit   int
	held    *memory.Hold // the memory that compiled sets take
	room    int64        // of the sandbox's budget, so that values never crowd out requests
	version atomic.Uint64
	swapped atomic.Bool // a value is of the kind that is put into requests
	masker  atomic.Pointer[masker]
}

// keptValue is one value.
type keptValue struct {
	value       secret.Secret
	signs       bool // AWS credentials, of which an answer may hold any part
	placeholder string
}

// masker takes the values of all secrets out of responses. A new one shares what the last had compiled.
type masker struct {
	version uint64
	values  int // how many of them
	set     *mask.Set
	replace mask.Replacer
	// solid finds values that have blanks of their own in text without any.
	solid *mask.Set
}

func newKnown(b *memory.Budget) *known {
	return &known{at: make(map[[sha256.Size]byte]int), limit: maxKnown, held: &memory.Hold{Budget: b}, room: b.Limit() / 2}
}

// notKept is the answer to what would bring a value that keep refuses.
func notKept(err error) *refusal {
	switch {
	case errors.Is(err, errKnownFull):
		return knownFull()
	case errors.Is(err, memory.ErrFull):
		return memoryFull()
	}
	return nil
}

// keep takes ownership of a value, which the answers of all exchanges are searched for from then on. A value
// that was known before gets the new placeholder.
func (k *known) keep(value []byte, policy *policies.Secret, placeholder string) (secret.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := sha256.Sum256(value)
	if i, ok := k.at[sum]; ok {
		clear(value)
		if k.values[i].placeholder != placeholder {
			k.values[i].placeholder = placeholder
			k.version.Add(1)
		}
		return k.values[i].value, nil
	}
	signs := policy.Kind == policies.SigV4
	cost := int64(needleCost + 4*len(value))
	if signs {
		cost *= 3 // its parts
	}
	if bytes.ContainsAny(value, blanks) {
		cost *= 2
	}
	if k.size+len(value)+knownCost > k.limit || k.held.Size()+cost > k.room {
		clear(value)
		return secret.Secret{}, errKnownFull
	}
	if !k.held.Take(cost) { // for now
		clear(value)
		return secret.Secret{}, memory.ErrFull
	}
	kept := keptValue{value: secret.New(value), signs: signs, placeholder: placeholder}
	k.at[sum], k.size = len(k.values), k.size+len(value)+knownCost
	k.values = append(k.values, kept)
	k.version.Add(1)
	if !signs {
		k.swapped.Store(true)
	}
	return kept.value, nil
}

// masks reports whether some secret's value is put into requests, so that answers must be masked. A signed
// request carries no value that an answer could repeat.
func (k *known) masks() bool { return k.swapped.Load() }

// newest returns what masks answers from now on. All values are masked, not only those of the host: a
// server may hold another one from elsewhere.
func (k *known) newest() *masker {
	if m := k.masker.Load(); m != nil && m.version == k.version.Load() {
		return m
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	version := k.version.Load()
	if m := k.masker.Load(); m != nil && m.version == version {
		return m // compiled by another meanwhile
	}
	var needles, replacements, solid [][]byte
	m := &masker{version: version, values: len(k.values), set: mask.Compile(nil, mask.Options{})}
	m.solid = m.set
	compiled := 0
	if old := k.masker.Load(); old != nil {
		m.set, m.solid, compiled = old.set, old.solid, old.values // none is ever taken out
	}
	for i, v := range k.values {
		for _, part := range v.parts() {
			replacements = append(replacements, []byte(v.placeholder))
			if i < compiled {
				continue
			}
			needles = append(needles, part)
			if bytes.ContainsAny(part, blanks) {
				solid = append(solid, []byte(unfold.Replace(string(part))))
			}
		}
	}
	m.set, m.solid, m.replace = m.set.Add(needles), m.solid.Add(solid), mask.ReplaceBy(replacements)
	k.masker.Store(m)
	return m
}

// needles is newest in the form that a stream asks for.
func (k *known) needles() (*mask.Set, mask.Replacer) {
	m := k.newest()
	return m.set, m.replace
}

// parts is what of the value an answer may not hold.
func (v *keptValue) parts() [][]byte {
	if !v.signs {
		return [][]byte{v.value.Reveal()}
	}
	keys, err := sigv4.ParseKeys(v.value.Reveal())
	if err != nil {
		return nil // nothing is signed with them either
	}
	return [][]byte{[]byte(keys.SecretAccessKey), []byte(keys.SessionToken), []byte(keys.AccessKeyID)}
}

// close overwrites every value. Nothing may be masked any more.
func (k *known) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.values {
		v.value.Close()
	}
	k.masker.Store(nil)
	k.held.Release()
}
