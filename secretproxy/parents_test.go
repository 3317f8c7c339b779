package secretproxy

import (
	"bufio"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// TestI18_ParentsPlaceholdersAreRefused sends the placeholder of the sandbox that this one was cloned from, wherever one
// may be: no server gets it, the reason is its own, and the sandbox goes on although the secret of that name would end it.
// The twin, without Parents, shows that it gets through.
func TestI18_ParentsPlaceholdersAreRefused(t *testing.T) {
	t.Parallel()
	const parents = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	for _, known := range []bool{true, false} {
		s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody}, policies.Place{Kind: policies.InBasic}, query("token"))
		s.OnViolation = policies.Terminate
		w := newWorld(t, echo, withSecret(s), func(_ *policies.Policy, cfg *Config) {
			if known {
				cfg.Parents = map[string]string{parents: "GITHUB_TOKEN"}
			}
		})
		if w.placeholder() == parents || len(w.proxy.Placeholders()) != 1 {
			t.Errorf("the sandbox' own placeholders are %v", w.proxy.Placeholders())
		}
		for round := range 2 { // a reload keeps it
			for what, r := range map[string]*http.Request{
				"its own place": request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", "Bearer "+parents),
				"another":       request(t, "GET", "https://"+apiHost+"/", nil, "X-Other", parents),
				"the path":      request(t, "GET", "https://"+apiHost+"/"+parents, nil),
				"the body":      request(t, "POST", "https://"+apiHost+"/", strings.NewReader("a="+parents)),
				"basic":         request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", basicAuth("u", parents)),
				"the query":     request(t, "GET", "https://"+apiHost+"/?token="+parents, nil),
				"escaped":       request(t, "GET", "https://"+apiHost+"/?token="+percentAll(parents), nil),
				"base64":        request(t, "GET", "https://"+apiHost+"/", nil, "X-Other", base64.StdEncoding.EncodeToString([]byte("u:"+parents))),
			} {
				resp, got := do(t, w.client(apiHost, apiAddr, round == 1), r) // over HTTP/2 too
				refused := resp.StatusCode == http.StatusForbidden && strings.Contains(got, `"reason":"secret_of_parent"`)
				if refused != known || known && strings.Contains(got, parents) {
					t.Errorf("known %v, %s: status %d: %s", known, what, resp.StatusCode, got)
				}
			}
			resp, got := do(t, w.client(evilHost, evilAddr, false), request(t, "GET", "https://"+evilHost+"/", nil, "X", parents))
			if refused := resp.StatusCode == http.StatusForbidden; refused != known {
				t.Errorf("known %v, another host: status %d: %s", known, resp.StatusCode, got)
			}
			resp, got = do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
			if resp.StatusCode != http.StatusOK {
				t.Errorf("known %v, its own: status %d: %s", known, resp.StatusCode, got)
			}
			if err := w.proxy.Reload(w.proxy.cfg.Policy, w.judge); err != nil {
				t.Fatal(err)
			}
		}
		if known && strings.Contains(w.api.bytes()+w.evil.bytes(), parents) {
			t.Error("a server got the placeholder")
		}
		if err := w.proxy.Close(); err != nil {
			t.Fatal(err)
		}
		if len(w.terminated) != 0 {
			t.Errorf("known %v: terminated %q", known, w.terminated)
		}
		violations := len(w.events.of(audit.SecretViolation))
		if want := 18; known && violations != want {
			t.Errorf("%d violations are in the log, want %d", violations, want)
		}
	}
}

// TestI18_ParentsPlaceholdersInWebSocketsAreRefused: likewise in a message, which has no place for a status. The twin, without
// Parents, shows that it arrives.
func TestI18_ParentsPlaceholdersInWebSocketsAreRefused(t *testing.T) {
	t.Parallel()
	const parents = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	for _, known := range []bool{true, false} {
		s := socketSecret(t)
		s.OnViolation = policies.Terminate
		got := make(chan string, 1)
		w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) {
			_, payload, err := readTestMessage(r)
			if err != nil {
				payload = "end"
			}
			got <- payload
		}, withSecret(s), func(_ *policies.Policy, cfg *Config) {
			if known {
				cfg.Parents = map[string]string{parents: "GITHUB_TOKEN"}
			}
		})
		conn, r, _ := open(apiHost, apiAddr, "")
		if _, err := io.WriteString(conn, cut(true, 1, "hello "+parents, 7, true)); err != nil {
			t.Fatal(err)
		}
		want := "hello " + parents
		if known {
			want = "end"
			if opcode, payload, err := readTestMessage(r); err != nil || opcode != opClose || payload != "\x03\xf0secret_of_parent" {
				t.Errorf("the guest got %d %q, %v", opcode, payload, err)
			}
		}
		if arrived := <-got; arrived != want {
			t.Errorf("known %v: the server got %q, want %q", known, arrived, want)
		}
		_ = conn.Close()
		if err := w.proxy.Close(); err != nil {
			t.Fatal(err)
		}
		if len(w.terminated) != 0 {
			t.Errorf("known %v: terminated %q", known, w.terminated)
		}
	}
}
