package secretproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// mintWorld is a server that gives out the token in ?n=, and shows it again at other paths.
func mintWorld(t *testing.T) (w *world, ask func(path string, n int) string) {
	t.Helper()
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"access_token":"real-access-token-%s","sent":%q}`, r.URL.Query().Get("n"), r.Header.Get("Authorization"))
	}, withSecret(s))
	c := w.client(apiHost, apiAddr, false)
	return w, func(path string, n int) string {
		_, body := do(t, c, request(t, "GET", fmt.Sprintf("https://%s%s?n=%03d", apiHost, path, n), nil))
		return body
	}
}

// keptPlaceholder is what stands for that value in answers, or "".
func keptPlaceholder(w *world, value string) string {
	k := w.proxy.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.values {
		if string(v.value.Reveal()) == value {
			return v.placeholder
		}
	}
	return ""
}

func reload(t *testing.T, w *world, secrets ...policies.Secret) {
	t.Helper()
	next := policies.Default()
	next.Secrets = secrets
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
}

// TestI10_NoGrantForgetsAnOlderToken: a guest asks for as many tokens as it likes, and then has the server
// show the first again, after reloads too.
func TestI10_NoGrantForgetsAnOlderToken(t *testing.T) {
	t.Parallel()
	w, ask := mintWorld(t)
	const grants = maxMinted + 40
	for n := range grants {
		if body := ask("/token", n); strings.Contains(body, "real") {
			t.Fatalf("the guest got %s", body)
		}
	}
	for round := range 3 {
		for n := 0; n < grants; n += 20 {
			if body := ask("/elsewhere", n); strings.Contains(body, "real") {
				t.Errorf("after %d reloads, token %d shown again: the guest got %s", round, n, body)
			}
		}
		reload(t, w, w.proxy.state.Load().policy.Secrets...)
	}
	if n := countMinted(w.proxy.state.Load().table.Load().secrets); n != maxMinted {
		t.Errorf("%d tokens work, want %d", n, maxMinted)
	}
	values := w.proxy.known.values
	if err := w.proxy.Close(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if n := v.value.Len(); n != 0 {
			t.Fatalf("%d bytes of a value are left after Close", n)
		}
	}
}

// TestI10_MintsBeyondTheBoundAreRefused: and what was known before is masked still.
func TestI10_MintsBeyondTheBoundAreRefused(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	const size = 8 << 10
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		n := r.URL.Query().Get("n")
		_, _ = fmt.Fprintf(rw, `{"access_token":"real-%s%s%s"}`, n, strings.Repeat("x", size-11), n)
	}, withSecret(s))
	const limit = 128 << 10
	w.proxy.known.limit = limit
	c := w.client(apiHost, apiAddr, true)
	ask := func(path string, n int) (int, string) {
		resp, body := do(t, c, request(t, "GET", fmt.Sprintf("https://%s%s?n=%03d", apiHost, path, n), nil))
		return resp.StatusCode, body
	}
	minted := 0
	for ; minted <= limit/size; minted++ {
		status, body := ask("/token", minted)
		if strings.Contains(body, "xxxx") {
			t.Fatalf("grant %d: the guest got %.80s", minted, body)
		}
		if status == http.StatusBadGateway {
			if !strings.Contains(body, "secret_values_full") {
				t.Errorf("refused with %s", body)
			}
			break
		}
	}
	if want := limit / (size + knownCost); minted < want-2 || minted > want {
		t.Errorf("%d tokens were minted before the bound, want about %d", minted, want)
	}
	for _, n := range []int{0, minted / 2, minted - 1} {
		if _, body := ask("/token", n); strings.Contains(body, "xxxx") || !strings.Contains(body, "msb_") {
			t.Errorf("token %d again: the guest got %.80s", n, body)
		}
		if _, body := ask("/elsewhere", n); strings.Contains(body, "xxxx") {
			t.Errorf("token %d, shown elsewhere: the guest got %.80s", n, body)
		}
	}
	if last := w.events.of("http.request"); !slices.ContainsFunc(last, func(e audit.Event) bool { return e.Reason == "secret_values_full" }) {
		t.Error("the audit log has no line about it")
	}
	next := policies.Default()
	next.Secrets = []policies.Secret{s}
	if err := os.WriteFile(s.From.Value, []byte(strings.Repeat("y", size)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.proxy.Reload(next, w.judge); !errors.Is(err, errKnownFull) {
		t.Errorf("a reload with one more value: %v, want an error", err)
	}
}

// TestI10_RefreshesForgetNothing: a guest provokes answers of status 401, after each of which the source's
// command is run again; at the bound the request is refused that would bring one value more.
func TestI10_RefreshesForgetNothing(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(time.Now().UnixNano())
	var note atomic.Value
	s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
	s.From = policies.Source{
		Kind: policies.FromCommand, RefreshOn401: true,
		Argv: []string{"sh", "-c", `echo x >> "$0"; echo "lease-number-$(wc -l < "$0" | tr -d ' ')-abcdef"`, filepath.Join(t.TempDir(), "runs")},
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodPut:
			note.Store(string(body))
		case r.URL.Path == "/note":
			_, _ = io.WriteString(rw, note.Load().(string))
		default:
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}, withSecret(s), func(_ *policies.Policy, c *Config) { c.now = func() time.Time { return time.Unix(0, clock.Load()) } })
	c := w.client(apiHost, apiAddr, true)
	do(t, c, request(t, "PUT", "https://"+apiHost+"/note", strings.NewReader(w.placeholder())))
	provoke := func() int {
		clock.Add(int64(time.Minute)) // past the bound on refreshes
		resp, _ := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
		return resp.StatusCode
	}
	for range 12 {
		if status := provoke(); status != http.StatusUnauthorized {
			t.Errorf("status %d, want the server's 401", status)
		}
	}
	if n := strings.Count(w.api.bytes(), "Authorization: lease-number-7-abcdef"); n == 0 {
		t.Error("the command was not run again")
	}
	w.proxy.known.limit = w.proxy.known.size
	for i := range 4 { // of which every other one would bring a new value
		if status, want := provoke(), []int{http.StatusUnauthorized, http.StatusBadGateway}[i%2]; status != want {
			t.Errorf("request %d at the bound: status %d, want %d", i, status, want)
		}
	}
	if _, body := do(t, c, request(t, "GET", "https://"+apiHost+"/note", nil)); body != w.placeholder() {
		t.Errorf("the note with the first value reads %q, want %q", body, w.placeholder())
	}
}

// TestI11_SpellingsOfValuesAreCounted: what a set of values takes when it is compiled is counted, with a bound; answers
// are masked and pass there as before.
func TestI11_SpellingsOfValuesAreCounted(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	const memory = 2 << 20
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"access_token":"a-minted-token-%s"}`, r.URL.Query().Get("n"))
		_ = http.NewResponseController(rw).Flush()
	}, withSecret(s), withMemory(memory))
	c := w.client(apiHost, apiAddr, true)
	ask := func(path string, n int) (int, string) {
		resp, body := do(t, c, request(t, "GET", fmt.Sprintf("https://%s%s?n=%03d", apiHost, path, n), nil))
		return resp.StatusCode, body
	}
	minted := 0
	for ; minted < memory/needleCost; minted++ {
		if status, body := ask("/token", minted); status == http.StatusBadGateway {
			if !strings.Contains(body, "secret_values_full") {
				t.Errorf("refused with %s", body)
			}
			break
		}
	}
	if want := memory / 2 / needleCost; minted < want-4 || minted > want {
		t.Errorf("%d tokens were minted before the bound, want about %d", minted, want)
	}
	for _, n := range []int{0, minted - 1} {
		if status, body := ask("/elsewhere", n); status != http.StatusOK || strings.Contains(body, "minted") {
			t.Errorf("token %d at the bound: status %d, %s", n, status, body)
		}
	}
}

// TestI11_ValuePartsAreCounted: AWS credentials are three values, and one with blanks is sought without them too.
func TestI11_ValuePartsAreCounted(t *testing.T) {
	t.Parallel()
	const length = 60
	value := strings.Repeat("v", 20) + ":" + strings.Repeat("s", length-21)
	cost := func(value string, change func(*policies.Secret)) int64 {
		s := secretOf(t, "GITHUB_TOKEN", value, header("Authorization"))
		change(&s)
		return newWorld(t, echo, withSecret(s)).proxy.Stats().Values
	}
	one := cost(value, func(*policies.Secret) {})
	if one < length {
		t.Errorf("a value of %d bytes counts as %d", length, one)
	}
	if got := cost(value, func(s *policies.Secret) { s.Kind, s.In, s.Placeholder = policies.SigV4, nil, "AKIA{16}" }); got != 3*one {
		t.Errorf("AWS credentials count as %d, another value of their length as %d", got, one)
	}
	if got := cost(strings.Replace(value, ":", " ", 1), func(*policies.Secret) {}); got != 2*one {
		t.Errorf("a value with a blank counts as %d, another of its length as %d", got, one)
	}
}

// A token that comes again after its time gets a placeholder that works.
func TestRepeatedTokensWorkAgain(t *testing.T) {
	t.Parallel()
	w, ask := mintWorld(t)
	before := ask("/token", 0)
	for n := range maxMinted {
		ask("/token", n+1)
	}
	again := ask("/token", 0)
	placeholder := keptPlaceholder(w, "real-access-token-000")
	if again == before || !strings.Contains(again, placeholder) {
		t.Errorf("the guest got %s, want %s", again, placeholder)
	}
	resp, _ := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", placeholder))
	if resp.StatusCode != http.StatusOK || !strings.Contains(w.api.bytes(), "Authorization: real-access-token-000") {
		t.Errorf("status %d, and the server did not get the token", resp.StatusCode)
	}
}

// TestI10_RemovedSecretsStayMasked asks on a connection from before, which goes on, and on a new
// one. The secret's tokens go with it, and are masked too.
func TestI10_RemovedSecretsStayMasked(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	const token = "real-access-token"
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = io.WriteString(rw, `{"access_token":"`+token+`"}`)
			return
		}
		_, _ = io.WriteString(rw, realValue+" "+token)
	}, withSecret(s))
	old := w.client(apiHost, apiAddr, true)
	do(t, old, request(t, "GET", "https://"+apiHost+"/token", nil))
	placeholder := w.placeholder()
	_, want := do(t, old, request(t, "GET", "https://"+apiHost+"/", nil))
	for i := range 3 {
		if err := w.proxy.Reload(policies.Default(), w.judge); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]*http.Client{"old": old, "new": w.client(apiHost, apiAddr, true)} {
			if _, body := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil)); body != want || !strings.HasPrefix(body, placeholder+" msb_") {
				t.Errorf("reload %d, %s connection: the guest got %q, want %q", i+1, name, body, want)
			}
		}
	}
	// It doesn't work any more, until it comes back under its placeholder.
	do(t, old, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", placeholder))
	if strings.Contains(w.api.bytes(), realValue) {
		t.Error("the server got the value of a secret that is gone")
	}
	next := policies.Default()
	next.Secrets = []policies.Secret{s}
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
	if w.placeholder() != placeholder {
		t.Error("the placeholder changed")
	}
	do(t, old, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", placeholder))
	if !strings.Contains(w.api.bytes(), realValue) {
		t.Error("the server did not get the value")
	}
}
