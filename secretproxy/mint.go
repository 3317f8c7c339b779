package secretproxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/secret"
)

const (
	// maxTokenAnswer bounds an answer that tokens are taken from; token
	// endpoints answer with a few KiB (RFC 6749, section 5.1).
	maxTokenAnswer = 1 << 20
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
// whose policy asks for it. The masker does the replacing, since it knows the
// new values from here on.
//
// It fails closed: an answer on that path that can't be read is not passed on.
func (p *Proxy) mint(ex *exchange, resp *http.Response) *refusal {
	parents := ex.minting(resp.StatusCode)
	if len(parents) == 0 || ex.head || resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	defer resp.Body.Close()
	unreadable := &refusal{
		status: http.StatusBadGateway, code: "mint_unreadable", cause: "mint",
		message: "the answer should hold tokens, but it is larger than 1 MiB or not a JSON object, or they are no texts of 8 bytes to 8 KiB, so that they can't be replaced",
	}
	body, err := decoded(resp)
	if err != nil {
		return unreadable
	}
	data, err := io.ReadAll(io.LimitReader(body, maxTokenAnswer+1))
	defer clear(data)
	if err != nil {
		return upstreamRefusal(err)
	}
	var fields map[string]any
	if len(data) > maxTokenAnswer || json.Unmarshal(data, &fields) != nil {
		return unreadable
	}
	for _, parent := range parents {
		for _, name := range parent.holder.Policy().Mint.Fields {
			token, ok := fields[name].(string)
			if fields[name] == nil || ok && token == "" {
				continue // there is none
			}
			if !ok || len(token) < secret.MinLength || len(token) > secret.MaxLength {
				return unreadable
			}
			if err := p.register(parent, name, token); err != nil {
				if errors.Is(err, errKnownFull) {
					return knownFull()
				}
				return unreadable
			}
		}
	}
	// Replaced here, escapes and all, so that the body stays JSON.
	masker := p.known.newest()
	out, hits, err := masker.set.ReplaceBytes(data, masker.replace)
	if err != nil || keepsToken(out, fields, parents) {
		return unreadable
	}
	p.counters.masked.Add(uint64(hits))
	resp.Body, resp.ContentLength = newBytesBody(slices.Clone(out)), int64(len(out))
	resp.Header.Set("Content-Length", strconv.Itoa(len(out)))
	resp.Header.Del("Content-Encoding")
	return nil
}

// keepsToken reports whether a field reads in out as it did before: written in
// a way that the masker doesn't know.
func keepsToken(out []byte, before map[string]any, parents []*entry) bool {
	var after map[string]any
	if json.Unmarshal(out, &after) != nil {
		return true
	}
	for _, parent := range parents {
		for _, name := range parent.holder.Policy().Mint.Fields {
			if token, _ := before[name].(string); token != "" && after[name] == token {
				return true
			}
		}
	}
	return false
}

// minting returns the secrets whose tokens may be in this answer.
func (ex *exchange) minting(status int) []*entry {
	if status < 200 || status > 299 || !ex.guest.isTLS {
		return nil
	}
	var out []*entry
	for _, e := range ex.table.secrets {
		m := e.holder.Policy().Mint
		if e.parent != nil || m == nil || !ex.mayGo(e) {
			continue
		}
		if loosePath(ex.path) == loosePath(m.Path) {
			out = append(out, e)
		}
	}
	return out
}

// loosePath is what the most careless server takes a path for: decoded more
// than once, without parameters, backslashes as slashes,
// in any case. A token that is replaced needlessly does no harm; one that isn't,
// because it was asked for at /OAuth/token;x, is the guest's.
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
//
//nolint:gochecknoglobals // a counter for names
var minted atomic.Uint64

// register makes a token a secret of the state that is in force, which a reload may have put there while
// the request was under way. It is masked from here on, even if its secret is gone and it works nowhere.
func (p *Proxy) register(parent *entry, field, token string) error {
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
	value := secret.New([]byte(token))
	names, err := secret.Placeholders([]*secret.Holder{secret.Fixed(policy, value)}, nil, p.cfg.rand)
	value.Close()
	if err != nil {
		return err
	}
	if value, err = p.known.keep([]byte(token), &policy, names[0]); err != nil {
		return err
	}
	if owner == nil || owner.holder.Policy().Mint == nil {
		return nil
	}
	policy.Hosts, policy.In = owner.holder.Policy().Hosts, owner.holder.Policy().In
	entries := append(slices.Clone(old.secrets), &entry{holder: secret.Fixed(policy, value), placeholder: names[0], parent: owner})
	if countMinted(entries) > maxMinted {
		first := slices.IndexFunc(entries, func(e *entry) bool { return e.parent != nil })
		entries = slices.Delete(entries, first, first+1)
	}
	st.table.Store(newTable(entries))
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

// inherited returns the tokens that go on working after a reload: those whose
// secret is still there.
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
			holder: secret.Fixed(policy, e.holder.Value()), placeholder: e.placeholder, parent: entries[i],
		})
	}
	return out
}
