package secretproxy

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// TestI9_TokensFollowThePolicyInForce: a reload takes mint from a secret while the server makes a token. The guest
// does not get the token, and its placeholder works nowhere. In the twin the reload changes nothing.
func TestI9_TokensFollowThePolicyInForce(t *testing.T) {
	t.Parallel()
	for name, mints := range map[string]bool{"mint goes": false, "mint stays (twin)": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := secretIn(t, header("Authorization"))
			s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
			begun, reloaded := make(chan struct{}), make(chan struct{})
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/oauth/token" {
					close(begun)
					<-reloaded
					_, _ = io.WriteString(rw, `{"access_token":"real-access-token"}`)
					return
				}
				if r.Header.Get("Authorization") == "Bearer real-access-token" {
					rw.WriteHeader(http.StatusAccepted)
				}
			}, withSecret(s))
			go func() {
				defer close(reloaded)
				<-begun
				next := policies.Default()
				if !mints {
					s.Mint = nil
				}
				next.Secrets = []policies.Secret{s}
				if err := w.proxy.Reload(next, w.judge); err != nil {
					t.Error(err)
				}
			}()
			c := w.client(apiHost, apiAddr, false)
			resp, body := do(t, c, request(t, "POST", "https://"+apiHost+"/oauth/token", nil))
			_, token, _ := strings.Cut(body, `"access_token":"`)
			token, _, _ = strings.Cut(token, `"`)
			if resp.StatusCode != http.StatusOK || !strings.HasPrefix(token, "msb_") {
				t.Fatalf("status %d: %s", resp.StatusCode, body)
			}
			resp, _ = do(t, c, request(t, "GET", "https://"+apiHost+"/api", nil, "Authorization", "Bearer "+token))
			if (resp.StatusCode == http.StatusAccepted) != mints {
				t.Errorf("the token's placeholder: status %d", resp.StatusCode)
			}
		})
	}
}

// TestI9_PlainAnswersMintNothing: anyone on the way may have written what comes without TLS. The twin has TLS.
func TestI9_PlainAnswersMintNothing(t *testing.T) {
	t.Parallel()
	const answer = `{"access_token":"real-access-token"}`
	s := secretIn(t, header("Authorization"))
	pattern := hostname.MustParsePattern(apiHost)
	s.Hosts = []policies.SecretHost{{Pattern: pattern}, {Pattern: pattern, Port: plainAddr.Port()}}
	s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, answer) })
	w := newWorld(t, handler, withSecret(s))
	w.plain = newRecordingServer(t, apiHost, nil, handler)
	conn := w.pipe(flow(apiHost, plainAddr), true)
	_, _ = io.WriteString(conn, "GET /oauth/token HTTP/1.1\r\nHost: "+apiHost+"\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != answer {
		t.Errorf("without TLS: status %d, %q, %v", resp.StatusCode, body, err)
	}
	if _, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/oauth/token", nil)); strings.Contains(body, "real") {
		t.Errorf("with TLS: %q", body)
	}
}

// TestI9_TokensGoWhereTheirSecretGoes: a reload takes a host from a secret, and with it from the tokens that were made
// of it. In the twin the reload changes nothing.
func TestI9_TokensGoWhereTheirSecretGoes(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"the host goes": false, "the host stays (twin)": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := secretIn(t, header("Authorization"))
			s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/oauth/token" {
					_, _ = io.WriteString(rw, `{"access_token":"real-access-token"}`)
				} else if r.Header.Get("Authorization") == "Bearer real-access-token" {
					rw.WriteHeader(http.StatusAccepted)
				}
			}, withSecret(s))
			c := w.client(apiHost, apiAddr, false)
			_, body := do(t, c, request(t, "POST", "https://"+apiHost+"/oauth/token", nil))
			_, token, _ := strings.Cut(body, `"access_token":"`)
			token, _, _ = strings.Cut(token, `"`)
			if !stays {
				s.Hosts = []policies.SecretHost{{Pattern: hostname.MustParsePattern("other.test")}}
			}
			next := policies.Default()
			next.Secrets = []policies.Secret{s}
			if err := w.proxy.Reload(next, w.judge); err != nil {
				t.Fatal(err)
			}
			resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/api", nil, "Authorization", "Bearer "+token))
			if want := map[bool]int{true: http.StatusAccepted, false: http.StatusForbidden}[stays]; resp.StatusCode != want {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, want, body)
			}
		})
	}
}
