package secretproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// tokenServer is an OAuth server: refresh tokens for access tokens, and an API
// that wants the newest access token.
func tokenServer(t *testing.T) (http.HandlerFunc, *[]string) {
	t.Helper()
	issued := &[]string{}
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/oauth/token" {
			n := len(*issued)
			if n > 0 && !strings.Contains(string(body), fmt.Sprintf("real/refresh+token-%d", n-1)) && !strings.Contains(string(body), fmt.Sprintf("real%%2Frefresh%%2Btoken-%d", n-1)) {
				http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
				return
			}
			access := fmt.Sprintf("real-access-token-%d", n)
			*issued = append(*issued, access)
			_, _ = fmt.Fprintf(w, `{"access_token":"%s","refresh_token":"real\/refresh+token-%d","token_type":"Bearer"}`, access, n)
			return
		}
		n := len(*issued)
		if n == 0 || r.Header.Get("Authorization") != "Bearer "+(*issued)[n-1] {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "welcome, "+r.Header.Get("Authorization"))
	}, issued
}

func TestMintedTokensStayHidden(t *testing.T) {
	t.Parallel()
	handler, issued := tokenServer(t)
	s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
	s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token", "refresh_token"}}
	w := newWorld(t, handler, withSecret(s))
	c := w.client(apiHost, apiAddr, true)
	form := func(v string) *http.Request {
		return request(t, "POST", "https://"+apiHost+"/oauth/token", strings.NewReader("grant="+v), "Content-Type", "application/x-www-form-urlencoded")
	}
	refresh := w.placeholder()
	for round := range 3 {
		resp, body := do(t, c, form(refresh))
		var tokens struct {
			Access  string `json:"access_token"`
			Refresh string `json:"refresh_token"`
		}
		if err := json.Unmarshal([]byte(body), &tokens); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("round %d: status %d: %s", round, resp.StatusCode, body)
		}
		if strings.Contains(body, "real") || !strings.HasPrefix(tokens.Access, "msb_") || !strings.HasPrefix(tokens.Refresh, "msb_") {
			t.Fatalf("round %d: the guest got %s", round, body)
		}
		resp, body = do(t, c, request(t, "GET", "https://"+apiHost+"/api", nil, "Authorization", "Bearer "+tokens.Access))
		if resp.StatusCode != http.StatusOK || body != "welcome, Bearer "+tokens.Access {
			t.Fatalf("round %d: status %d: %s", round, resp.StatusCode, body)
		}
		refresh = tokens.Refresh
	}
	if len(*issued) != 3 {
		t.Errorf("%d tokens were issued", len(*issued))
	}
	// A reload keeps the tokens; a secret that is gone takes them along.
	next := policies.Default()
	next.Secrets = []policies.Secret{s}
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
	resp, body := do(t, c, form(refresh))
	if resp.StatusCode != http.StatusOK || strings.Contains(body, "real") {
		t.Errorf("after a reload: status %d: %s", resp.StatusCode, body)
	}
	_, access, _ := strings.Cut(body, `"access_token":"`)
	access, _, _ = strings.Cut(access, `"`)
	if n := len(w.proxy.Placeholders()); n != 1 {
		t.Errorf("%d placeholders are listed, want the policy's one", n)
	}
	if resp, _ := do(t, w.client(evilHost, evilAddr, true), request(t, "GET", "https://"+evilHost+"/", nil, "Authorization", "Bearer "+refresh)); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a minted placeholder at another host: status %d", resp.StatusCode)
	}
	// One whose secret mints no longer takes its tokens along.
	next.Secrets = []policies.Secret{s}
	next.Secrets[0].Mint = nil
	api := func() int {
		resp, _ := do(t, c, request(t, "GET", "https://"+apiHost+"/api", nil, "Authorization", "Bearer "+access))
		return resp.StatusCode
	}
	if status := api(); status != http.StatusOK {
		t.Fatalf("the newest token: status %d", status)
	}
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
	if status := api(); status == http.StatusOK {
		t.Error("a token works on after a reload that takes mint from its secret")
	}
}

func TestMintFailsClosed(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"not json real-access-token", `["real-access-token"]`, `{"access_token":"real-access-token","x":"` + strings.Repeat("x", maxTokenAnswer) + `"}`,
		`{"access_token":["real-access-token"]}`, `{"access_token":"short"}`, "{\"access_token\":\"real-access-token\xff\"}",
		`{"access_token":"` + strings.Repeat("real-access", 1000) + `"}`,
	} {
		s := secretIn(t, header("Authorization"))
		s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, answer) }, withSecret(s))
		for _, path := range []string{"/oauth/token", "/oauth//token", "/oauth/%74oken", "/x/../oauth/token", "/OAuth/Token", "/oauth/token;a=b", "/oauth%2ftoken", "/oauth%252ftoken", `/oauth\token`, "/oauth/token%20", "/oauth/token%00"} {
			resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+path, nil))
			if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "real-access") || strings.Contains(body, "short") {
				t.Errorf("%s: status %d: %.100s", path, resp.StatusCode, body)
			}
		}
	}
}

func TestI11_MintedTokensAreBounded(t *testing.T) {
	t.Parallel()
	n := 0
	s := secretIn(t, header("Authorization"))
	s.Hosts = []policies.SecretHost{{Pattern: hostname.MustParsePattern(apiHost)}}
	s.Mint = &policies.Mint{Path: "/t", Fields: []string{"access_token"}}
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = fmt.Fprintf(rw, `{"access_token":"real-access-token-%d"}`, n)
	}, withSecret(s))
	c := w.client(apiHost, apiAddr, false)
	for range maxMinted + 5 {
		if _, body := do(t, c, request(t, "GET", "https://"+apiHost+"/t", nil)); strings.Contains(body, "real") {
			t.Fatalf("the guest got %s", body)
		}
	}
	if got := countMinted(w.proxy.state.Load().table.Load().secrets); got != maxMinted {
		t.Errorf("%d tokens are known, want %d", got, maxMinted)
	}
}
