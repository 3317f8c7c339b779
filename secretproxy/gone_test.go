package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

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

// holderOf is where the state keeps that token, or nil.
func holderOf(w *world, token string) *entry {
	for _, e := range w.proxy.state.Load().table.Load().known {
		if string(e.holder.Known()[0].Reveal()) == token {
			return e
		}
	}
	return nil
}

func TestI10_ATokenThatWasSupersededIsStillMasked(t *testing.T) {
	t.Parallel()
	w, ask := mintWorld(t)
	for n := range maxMinted + maxGone {
		if body := ask("/token", n); strings.Contains(body, "real") {
			t.Fatalf("the guest got %s", body)
		}
	}
	for _, n := range []int{0, maxGone - 1, maxGone, maxMinted + maxGone - 1} {
		if body := ask("/elsewhere", n); strings.Contains(body, "real") {
			t.Errorf("token %d, shown again: the guest got %s", n, body)
		}
	}
	// A reload keeps what is only masked.
	next := policies.Default()
	next.Secrets = w.proxy.state.Load().policy.Secrets
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
	if body := ask("/elsewhere", 0); strings.Contains(body, "real") {
		t.Errorf("after a reload the guest got %s", body)
	}
}

func TestI11_TheOldestTokenIsForgottenAndWiped(t *testing.T) {
	t.Parallel()
	w, ask := mintWorld(t)
	ask("/token", 0)
	first := holderOf(w, "real-access-token-000")
	if first == nil {
		t.Fatal("the token is not known")
	}
	for n := range maxMinted + maxGone {
		ask("/token", n+1)
	}
	if n := first.holder.Known()[0].Len(); n != 0 {
		t.Errorf("%d bytes of the oldest token are left", n)
	}
	tab := w.proxy.state.Load().table.Load()
	if len(tab.gone) != maxGone || countMinted(tab.secrets) != maxMinted {
		t.Errorf("%d tokens work and %d are masked only, want %d and %d", countMinted(tab.secrets), len(tab.gone), maxMinted, maxGone)
	}
	if holderOf(w, realValue) == nil {
		t.Error("the policy's secret was forgotten")
	}
	var all []*entry
	all = append(all, tab.known...)
	if err := w.proxy.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if n := e.holder.Known()[0].Len(); n != 0 {
			t.Errorf("%s: %d bytes are left after Close", e.holder.Policy().Name, n)
		}
	}
}

// A token that comes again after its time gets a placeholder that works.
func TestATokenThatComesAgainWorksAgain(t *testing.T) {
	t.Parallel()
	w, ask := mintWorld(t)
	before := ask("/token", 0)
	for n := range maxMinted {
		ask("/token", n+1)
	}
	again := ask("/token", 0)
	placeholder := holderOf(w, "real-access-token-000").placeholder
	if again == before || !strings.Contains(again, placeholder) {
		t.Errorf("the guest got %s, want %s", again, placeholder)
	}
	resp, _ := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", placeholder))
	if resp.StatusCode != http.StatusOK || !strings.Contains(w.api.bytes(), "Authorization: real-access-token-000") {
		t.Errorf("status %d, and the server did not get the token", resp.StatusCode)
	}
}

// TestI10_ASecretThatAReloadRemovedIsStillMasked asks on a connection from before, which goes on, and on a new
// one. The secret's tokens go with it, and are masked too.
func TestI10_ASecretThatAReloadRemovedIsStillMasked(t *testing.T) {
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
