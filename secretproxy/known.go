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
	"github.com/msb-project/msb/secretproxy/secretstore"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

const (
	// maxKnown bounds the values that one sandbox has in its life: a thousand tokens of the usual length.
	// The guest causes many of them, by grants and by answers of status 401 (invariant 11).
	maxKnown = 1 << 20
	// knownCost is added to each value's length.
	knownCost = 512
	// needleCost is the measured memory of a value's spellings in a compiled set, and in the next set while that replaces
	// it.
	needleCost = 20 << 10
)

// errKnownFull refuses a value that could not be kept.
var errKnownFull = errors.New("the sandbox has had as many secret values as are kept, all of which are still masked; start it again")

// errTokensClash refuses an answer in which a token overlaps another one in part, and every later answer with a token. A
// guest that makes a server send JSON of its choice can register a token that begins before another one and ends with a
// guess; with unlimited tries it would learn that token letter by letter.
var errTokensClash = errors.New("two tokens overlap in an answer; no answer with a token is passed on any more")

// rank says who chose a value. Values of a rank are searched only in what the ranks before it left, so that they reveal
// nothing about those (see mask.Set.Then).
type rank int

const (
	rankPolicy rank = iota
	// rankPath is of tokens from exactly the path of the policy.
	rankPath
	// rankAnswer is of tokens from other answers, which a guest may have written: a file of its own that the host shows.
	rankAnswer
	ranks
)

// known holds every value that the sandbox has had, with its placeholder. None is forgotten while the sandbox lives: a
// server may show a value long after it stopped working, and a guest could make a bounded table forget one.
type known struct {
	mu      sync.Mutex
	values  []keptValue
	order   [ranks][]int // of values; one that came under two ranks is in both
	at      map[[sha256.Size]byte]int
	size    int
	limit   int
	held    *memory.Hold // the memory that compiled sets take
	room    int64        // of the sandbox's budget, so that values never crowd out requests
	version atomic.Uint64
	swapped atomic.Bool // a value is of the kind that is put into requests
	clashed atomic.Bool
	masker  atomic.Pointer[masker]
}

// keptValue is one value.
type keptValue struct {
	value       secretstore.Secret
	signs       bool // AWS credentials, of which an answer may hold any part
	placeholder string
	rank        rank
}

// masker takes the values of all secrets out of responses. A new one shares what the last had compiled.
type masker struct {
	version uint64
	values  int        // how many of them
	own     [ranks]own // what is compiled of each rank
	set     *mask.Set
	replace mask.Replacer
	// solid finds values that have blanks of their own in text without any.
	solid *mask.Set
}

// own is the values of one rank.
type own struct {
	set    *mask.Set
	values int
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
func (k *known) keep(value []byte, policy *policies.Secret, placeholder string) (secretstore.Secret, error) {
	return k.keepAs(rankPolicy, value, policy, placeholder)
}

// keepAs is keep for a value of that rank.
func (k *known) keepAs(r rank, value []byte, policy *policies.Secret, placeholder string) (secretstore.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := sha256.Sum256(value)
	i, found := k.at[sum]
	signs := policy.Kind == policies.SigV4
	if !found || r < k.values[i].rank {
		cost := int64(needleCost + 4*len(value))
		if signs {
			cost *= 3 // its parts
		}
		if bytes.ContainsAny(value, blanks) {
			cost *= 2
		}
		if !found && k.size+len(value)+knownCost > k.limit || k.held.Size()+cost > k.room {
			clear(value)
			return secretstore.Secret{}, errKnownFull
		}
		if !k.held.Take(cost) { // for now
			clear(value)
			return secretstore.Secret{}, memory.ErrFull
		}
	}
	switch {
	case !found:
		i = len(k.values)
		k.at[sum], k.size = i, k.size+len(value)+knownCost
		k.values = append(k.values, keptValue{value: secretstore.New(value), signs: signs, placeholder: placeholder, rank: r})
		k.order[r] = append(k.order[r], i)
		k.version.Add(1)
		if !signs {
			k.swapped.Store(true)
		}
		return k.values[i].value, nil
	case r < k.values[i].rank:
		k.values[i].rank = r
		k.order[r] = append(k.order[r], i)
		k.version.Add(1)
	}
	clear(value)
	if k.values[i].placeholder != placeholder {
		k.values[i].placeholder = placeholder
		k.version.Add(1)
	}
	return k.values[i].value, nil
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
	m := &masker{version: version, values: len(k.values), solid: mask.Compile(nil, mask.Options{})}
	compiled := 0
	for r := range m.own {
		m.own[r].set = m.solid
	}
	if old := k.masker.Load(); old != nil {
		m.own, m.solid, compiled = old.own, old.solid, old.values // none is ever taken out
	}
	var solid [][]byte
	for _, v := range k.values[compiled:] {
		for _, part := range v.parts() {
			if bytes.ContainsAny(part, blanks) {
				solid = append(solid, []byte(unfold.Replace(string(part))))
			}
		}
	}
	m.solid = m.solid.Add(solid)
	for r := ranks - 1; r >= 0; r-- {
		k.addRank(m, r)
	}
	k.masker.Store(m)
	return m
}

// addRank compiles the new values of a rank, and puts them before the later ranks.
func (k *known) addRank(m *masker, r rank) {
	var needles, replacements [][]byte
	o := &m.own[r]
	for n, i := range k.order[r] {
		v := &k.values[i]
		for _, part := range v.parts() {
			replacements = append(replacements, []byte(v.placeholder))
			if n >= o.values {
				needles = append(needles, part)
			}
		}
	}
	o.set, o.values = o.set.Add(needles), len(k.order[r])
	replace := mask.ReplaceBy(replacements)
	if r != rankPolicy {
		replace = k.unlessClash(replace)
	}
	if set := o.set; m.set != nil {
		m.set = set.Then(m.set, m.replace)
	} else {
		m.set = set
	}
	m.replace = replace
}

// unlessClash refuses tokens once two of them overlapped in part.
func (k *known) unlessClash(replace mask.Replacer) mask.Replacer {
	return func(h mask.Hit) ([]byte, error) {
		if h.Clash {
			k.clashed.Store(true)
		}
		if k.clashed.Load() {
			return nil, errTokensClash
		}
		return replace(h)
	}
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
