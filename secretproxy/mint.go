package secretproxy

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/memory"
	"github.com/msb-project/msb/secretproxy/secretstore"
)

const (
	// maxMinted bounds the tokens that are known at a time (invariant 11). At
	// the bound the oldest goes: its placeholder stops working, and the guest
	// has to ask for a new one. It stays masked (see known).
	maxMinted = 64
	// maxDecodings of a path: one by a proxy, one by a server, one by an
	// application. More would take time with the square of its length.
	maxDecodings = 3
)

// mint turns tokens in an answer into secrets of this sandbox: the guest gets
// placeholders for them, which work for the same hosts and places as the secret
// whose policy asks for it. Any JSON object of its hosts is looked at, whatever
// the path: servers answer a token request under many (attack: /oauth/token.json,
// /index.php/oauth/token). The masker does the replacing, since it knows the new
// values from here on.
//
// It fails closed: an answer on the path of the policy that can't be read is not
// passed on, and none from which a token that was seen can't be taken out.
func (p *Proxy) mint(ex *exchange, resp *http.Response) *refusal {
	parents, strict := ex.minting(resp.StatusCode)
	switch {
	case len(parents) == 0 || resp.Body == nil || resp.Body == http.NoBody:
		return nil
	case !strict && waits(resp):
		resp.Body = p.mintLate(ex, resp, parents)
		return nil
	}
	return p.mintFrom(ex, resp, parents, strict)
}

// mintFrom reads the object of an answer.
func (p *Proxy) mintFrom(ex *exchange, resp *http.Response, parents []*entry, strict bool) *refusal {
	unreadable := &refusal{
		status: http.StatusBadGateway, code: "mint_unreadable", cause: "mint",
		message: "the answer should hold tokens, but it is larger than 1 MiB or not a JSON object, or they are no texts of 8 bytes to 8 KiB, so that they can't be replaced",
	}
	answer := &tokenReader{resp: resp, held: ex.held}
	window := decoderCost(encodings(resp.Header))
	if !ex.held.Take(window) {
		return memoryFull()
	}
	defer ex.held.Give(window)
	content, err := answer.open()
	if err != nil {
		if strict {
			return unreadable
		}
		return nil // nothing was read; it is refused as one that can't be searched
	}
	content, wide := wideObject(content)
	if wide {
		return unreadable
	}
	found := scanTokens(content, strict, func(name string) bool { return len(mintersOf(parents, name)) > 0 })
	switch {
	case errors.Is(answer.err, memory.ErrFull):
		return memoryFull() // whatever the path: the rest may hold tokens
	case strict && answer.err != nil:
		return upstreamRefusal(answer.err)
	case strict && (found.err != nil || found.odd), errors.Is(found.err, errTokenDepth):
		return unreadable
	}
	if err := p.registerAll(ex, resp.StatusCode, parents, found.texts, strict); err != nil {
		return cmp.Or(notKept(err), unreadable)
	}
	if len(found.texts) > 0 && keepsToken(p, answer, found.texts) {
		return unreadable
	}
	answer.rewind()
	return nil
}

// registerAll makes secrets of texts. It skips short texts at paths other than the policy's,
// which no client would take for tokens.
func (p *Proxy) registerAll(ex *exchange, status int, parents []*entry, texts []tokenText, strict bool) error {
	for _, t := range texts {
		if len(t.text) < secretstore.MinLength && !strict {
			continue
		}
		if len(t.text) < secretstore.MinLength || len(t.text) > secretstore.MaxLength {
			return errTokenAnswer
		}
		for _, parent := range mintersOf(parents, t.field) {
			if err := p.register(ex.rankOf(parent, status), parent, t.field, t.text); err != nil {
				return err
			}
		}
	}
	return nil
}

// mintersOf returns the secrets whose mint names a field. Names are compared in any case, as
// some clients do.
func mintersOf(parents []*entry, name string) []*entry {
	var out []*entry
	for _, parent := range parents {
		if slices.ContainsFunc(parent.holder.Policy().Mint.Fields, func(f string) bool { return strings.EqualFold(f, name) }) {
			out = append(out, parent)
		}
	}
	return out
}

// keepsToken reports whether a field reads in the masked answer as it did
// before: the token is written in a way that the masker doesn't know, such as
// with bytes that are no UTF-8, for which JSON decoders put U+FFFD.
func keepsToken(p *Proxy, answer *tokenReader, before []tokenText) bool {
	data, err := answer.again()
	defer clear(data)
	if err != nil {
		return true
	}
	masker := p.known.newest()
	out, _, err := masker.set.ReplaceBytes(data, masker.replace)
	if err != nil {
		return true
	}
	after := scanTokens(bytes.NewReader(out), false, func(string) bool { return true })
	return slices.ContainsFunc(after.texts, func(t tokenText) bool {
		return slices.ContainsFunc(before, func(b tokenText) bool { return len(b.text) >= secretstore.MinLength && t.text == b.text })
	})
}

// minting returns the secrets whose tokens may be in this answer, and whether
// its path is one under which the policy says that they are.
func (ex *exchange) minting(status int) (parents []*entry, strict bool) {
	if !ex.guest.isTLS {
		return nil, false
	}
	for _, e := range ex.table.secrets {
		m := e.holder.Policy().Mint
		if m == nil || !ex.mayGo(e) { // tokens mint nothing
			continue
		}
		parents = append(parents, e)
		strict = strict || status >= 200 && status <= 299 && loosePath(ex.path) == loosePath(m.Path)
	}
	return parents, strict
}

// rankOf returns the rank of tokens in an answer. Only at exactly the policy's path they are the server's own: a similar
// path may be the policy's on some servers, and the name of a guest's file on others.
func (ex *exchange) rankOf(parent *entry, status int) rank {
	if status >= 200 && status <= 299 && ex.path == parent.holder.Policy().Mint.Path {
		return rankPath
	}
	return rankAnswer
}

// loosePath is a path as the most lenient server reads it: decoded more than once, without
// parameters, backslashes as slashes, in any case. A token that is replaced needlessly does no
// harm; one that isn't, because it was requested at /OAuth/token;x, would reach the guest.
func loosePath(raw string) string {
	for range maxDecodings {
		decoded, err := url.PathUnescape(raw)
		if err != nil || decoded == raw {
			break
		}
		raw = decoded
	}
	segments := strings.Split(strings.ReplaceAll(strings.ToLower(raw), `\`, "/"), "/")
	for i := range segments {
		if end := strings.IndexAny(segments[i], ";\x00"); end >= 0 {
			segments[i] = segments[i][:end]
		}
		segments[i] = strings.TrimSpace(segments[i])
	}
	clean, _, _ := strings.Cut(strings.Join(segments, "/"), "#")
	clean, _, _ = strings.Cut(clean, "?")
	return path.Clean("/" + clean)
}

// minted numbers the tokens of a process, so that their names are distinct.
var minted atomic.Uint64

// register adds a token to the state in force, which may be newer than the request. The token is masked from here on, even
// if its secret was removed and it works nowhere.
func (p *Proxy) register(r rank, parent *entry, field, token string) error {
	p.tables.Lock()
	defer p.tables.Unlock()
	st := p.state.Load()
	old := st.table.Load()
	if slices.ContainsFunc(old.secrets, func(e *entry) bool { return string(e.holder.Value().Reveal()) == token }) {
		return nil
	}
	policy := *parent.holder.Policy()
	owner := st.byName(policy.Name)
	policy.Name += "." + field + "." + strconv.FormatUint(minted.Add(1), 10)
	policy.Placeholder, policy.Mint, policy.From = policies.DefaultPlaceholder, nil, policies.Source{}
	value := secretstore.New([]byte(token))
	names, err := secretstore.Placeholders([]*secretstore.Holder{secretstore.Fixed(policy, value)}, nil, p.cfg.rand)
	value.Close()
	if err != nil {
		return err
	}
	if value, err = p.known.keepAs(r, []byte(token), &policy, names[0]); err != nil {
		return err
	}
	if owner == nil || owner.holder.Policy().Mint == nil {
		return nil
	}
	policy.Hosts, policy.In = owner.holder.Policy().Hosts, owner.holder.Policy().In
	next := old.with(&entry{holder: secretstore.Fixed(policy, value), placeholder: names[0], parent: owner})
	if countMinted(next.secrets) > maxMinted {
		first := slices.IndexFunc(next.secrets, func(e *entry) bool { return e.parent != nil })
		next = newTable(slices.Delete(next.secrets, first, first+1))
	}
	st.table.Store(next)
	return nil
}

func countMinted(entries []*entry) int {
	n := 0
	for _, e := range entries {
		if e.parent != nil {
			n++
		}
	}
	return n
}

// knownFull is the answer to what would bring a value that can't be kept.
func knownFull() *refusal {
	return &refusal{
		status: http.StatusBadGateway, code: "secret_values_full", cause: "secret",
		message: errKnownFull.Error(),
	}
}

// inherited returns the tokens that keep working after a reload: those whose secret still
// exists.
func (s *state) inherited(entries []*entry) []*entry {
	var out []*entry
	for _, e := range s.table.Load().secrets {
		if e.parent == nil {
			continue
		}
		i := slices.IndexFunc(entries, func(n *entry) bool {
			return n.holder.Policy().Name == e.parent.holder.Policy().Name && n.holder.Policy().Mint != nil
		})
		if i < 0 {
			continue
		}
		policy := *e.holder.Policy()
		policy.Hosts, policy.In = entries[i].holder.Policy().Hosts, entries[i].holder.Policy().In
		out = append(out, &entry{
			holder: secretstore.Fixed(policy, e.holder.Value()), placeholder: e.placeholder, parent: entries[i],
		})
	}
	return out
}
