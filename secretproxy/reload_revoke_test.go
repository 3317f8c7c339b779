package secretproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// revocations are what a reload can do to a secret, with the reason that a placeholder is refused for from then on.
func revocations(s policies.Secret) map[string]func() (after []policies.Secret, reason string) {
	return map[string]func() ([]policies.Secret, string){
		"kept":    func() ([]policies.Secret, string) { return []policies.Secret{s}, "" },
		"removed": func() ([]policies.Secret, string) { return nil, "secret_place" },
		"moved": func() ([]policies.Secret, string) {
			o := s
			o.Hosts = []policies.SecretHost{{Pattern: hostname.MustParsePattern(evilHost)}}
			return []policies.Secret{o}, "secret_host"
		},
		"no longer in that place": func() ([]policies.Secret, string) {
			o := s
			o.In = []policies.Place{query("key")}
			return []policies.Secret{o}, "secret_place"
		},
	}
}

// TestI9_ReloadsRevokeOpenUploads: a placeholder that an upload holds after the reload is a violation, if its secret was
// taken from there.
func TestI9_ReloadsRevokeOpenUploads(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 2 << 20} {
		s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
		for name, revocation := range revocations(s) {
			after, reason := revocation()
			begun, got := make(chan struct{}), make(chan string, 1)
			w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				body, _ := io.ReadAll(r.Body)
				got <- string(body)
			}, withSecret(s))
			body, more := io.Pipe()
			go func() {
				_, _ = io.WriteString(more, strings.Repeat("x", 64<<10))
				<-begun
				reload(t, w, after...)
				text := " " + w.proxy.assigned["GITHUB_TOKEN"]
				if length > 0 {
					text += strings.Repeat(" ", int(length)-64<<10-len(text))
				}
				_, _ = io.WriteString(more, text)
				_ = more.Close()
			}()
			r := request(t, "POST", "https://"+apiHost+"/", body)
			r.ContentLength = length
			resp, answer := do(t, w.client(apiHost, apiAddr, true), r)
			if resp.Header.Get("X-Msb-Reason") != reason || (resp.StatusCode == http.StatusForbidden) != (reason != "") {
				t.Errorf("%s, length %d: status %d %s, want %q", name, length, resp.StatusCode, answer, reason)
			}
			_ = more.Close()
			if sent := strings.Contains(<-got, realValue); sent != (reason == "") {
				t.Errorf("%s, length %d: the server was sent the value: %v", name, length, sent)
			}
		}
	}
}

// TestI9_ReloadsRevokeOpenMessages: the same for one message of a WebSocket, which can be as long.
func TestI9_ReloadsRevokeOpenMessages(t *testing.T) {
	t.Parallel()
	s := socketSecret(t)
	for name, revocation := range revocations(s) {
		after, reason := revocation()
		begun, got := make(chan struct{}), make(chan string, 1)
		w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) {
			_, _, _ = readTestFrame(r)
			close(begun)
			_, text, _ := readTestMessage(r)
			got <- text
		}, withSecret(s))
		conn, r, _ := open(apiHost, apiAddr, "")
		p := w.placeholder()
		_, _ = io.WriteString(conn, testFrame(true, 0x02, strings.Repeat("x", wholeMessage+1)))
		<-begun
		reload(t, w, after...)
		_, _ = io.WriteString(conn, testFrame(true, 0x80, p+" end"))
		if reason != "" {
			if _, text, err := readTestMessage(r); err != nil || !strings.HasSuffix(text, reason) {
				t.Errorf("%s: the guest got %q, %v; want %s", name, text, err, reason)
			}
		}
		if sent := strings.Contains(<-got, realValue); sent != (reason == "") {
			t.Errorf("%s: the server was sent the value: %v", name, sent)
		}
	}
}

// TestI9_ReloadsRevokeHeldRequests: the head has its value, and the request waits for a body that is held whole.
func TestI9_ReloadsRevokeHeldRequests(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
	for name, revocation := range revocations(s) {
		after, reason := revocation()
		if name == "no longer in that place" {
			continue // of a head that was written before only the host counts
		}
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, withSecret(s))
		body, more := io.Pipe()
		before := w.proxy.Stats().Held
		go func() {
			_, _ = io.WriteString(more, "begun")
			eventually(t, name+": the body isn't waited for", func() bool { return w.proxy.Stats().Held >= before+maskCost })
			reload(t, w, after...)
			_, _ = io.WriteString(more, "ended")
			_ = more.Close()
		}()
		r := request(t, "POST", "https://"+apiHost+"/", body, "Authorization", w.placeholder())
		r.ContentLength = 10
		resp, answer := do(t, w.client(apiHost, apiAddr, false), r)
		if resp.Header.Get("X-Msb-Reason") != reason {
			t.Errorf("%s: status %d %s, want %q", name, resp.StatusCode, answer, reason)
		}
		if sent := strings.Contains(w.api.bytes(), realValue); sent != (reason == "") {
			t.Errorf("%s: the server was sent the value: %v", name, sent)
		}
	}
}

// TestI9_ReloadsRevokeWaitingRequests: one that waited for its turn goes by the policy of then.
func TestI9_ReloadsRevokeWaitingRequests(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	for name, revocation := range revocations(s) {
		after, reason := revocation()
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, withSecret(s))
		for range maxExchanges {
			w.proxy.exchanges <- struct{}{}
		}
		p, before, client := w.placeholder(), w.proxy.Stats(), w.client(apiHost, apiAddr, false)
		answer := make(chan string, 1)
		go func() {
			resp, body := do(t, client, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", p))
			answer <- fmt.Sprint(resp.StatusCode, body)
		}()
		eventually(t, name+": the request isn't there", func() bool {
			now := w.proxy.Stats()
			return now.Requests > 0 && now.Held > before.Held
		})
		reload(t, w, after...)
		for range maxExchanges {
			<-w.proxy.exchanges
		}
		if got := <-answer; name != "removed" && strings.Contains(got, `"`+reason+`"`) != (reason != "") {
			t.Errorf("%s: %s, want %q", name, got, reason)
		}
		if sent := strings.Contains(w.api.bytes(), realValue); sent != (reason == "") {
			t.Errorf("%s: the server was sent the value: %v", name, sent)
		}
	}
}
