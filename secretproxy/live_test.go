package secretproxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
)

// liveWorld has a stream at /events, on which what is put to /say is repeated, and tokens at /token.
func liveWorld(t *testing.T, options ...option) *world {
	t.Helper()
	said := make(chan string, 16)
	// The stream is open when the test ends: its server need not wait for a guest that may only have ended its side.
	options = append(options, func(_ *policies.Policy, c *Config) { c.halfClose = time.Millisecond })
	return newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/token":
			_, _ = io.WriteString(rw, `{"access_token":"`+r.URL.Query().Get("t")+`"}`)
		case "/say":
			body, _ := io.ReadAll(r.Body)
			said <- r.Header.Get("Authorization") + string(body)
		case "/events":
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			for {
				select {
				case text := <-said:
					_, _ = io.WriteString(rw, "data: "+text+"\n\n")
					_ = http.NewResponseController(rw).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
	}, options...)
}

// events opens the stream and returns what reads one event of it.
func events(t *testing.T, c *http.Client) (next func() string) {
	t.Helper()
	resp, err := c.Do(request(t, "GET", "https://"+apiHost+"/events", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	br := bufio.NewReader(resp.Body)
	return func() string {
		t.Helper()
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = br.ReadString('\n')
		return strings.TrimSuffix(line, "\n")
	}
}

// TestI10_StreamsTakeTheNewestValues: a stream that was opened first shows nothing that was minted, rotated or
// loaded while it was open.
func TestI10_StreamsTakeTheNewestValues(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(time.Now().UnixNano())
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	for _, http2 := range []bool{true, false} {
		w := liveWorld(t, withSecret(s), func(_ *policies.Policy, c *Config) { c.now = func() time.Time { return time.Unix(0, clock.Load()) } })
		c := w.client(apiHost, apiAddr, http2)
		next := events(t, c)
		say := func(placeholder string) {
			do(t, c, request(t, "POST", "https://"+apiHost+"/say", nil, "Authorization", placeholder))
		}
		expect := func(when, want string) {
			t.Helper()
			if got := next(); got != "data: "+want {
				t.Errorf("http2 %v, %s: the stream says %q, want %q", http2, when, got, "data: "+want)
			}
		}
		mint := func(token string) string {
			_, body := do(t, c, request(t, "GET", "https://"+apiHost+"/token?t="+token, nil))
			var got map[string]string
			if err := json.Unmarshal([]byte(body), &got); err != nil || !strings.HasPrefix(got["access_token"], "msb_") {
				t.Fatalf("%s, %v", body, err)
			}
			return got["access_token"]
		}
		say(w.placeholder())
		expect("before", w.placeholder())
		token := mint("REAL-token-0123456789")
		say(token)
		expect("after a mint", token)
		if err := os.WriteFile(s.From.Value, []byte("ghp_another-value-after-rotation"), 0o600); err != nil {
			t.Fatal(err)
		}
		clock.Add(int64(time.Minute))
		say(w.placeholder())
		expect("after a rotation", w.placeholder())
		other := secretIn(t, header("Authorization"))
		other.Name = "OTHER"
		if err := os.WriteFile(other.From.Value, []byte("other-secret-value-0123456789"), 0o600); err != nil {
			t.Fatal(err)
		}
		reload(t, w, s, other)
		say(w.proxy.Placeholders()["OTHER"])
		expect("after a reload", w.proxy.Placeholders()["OTHER"])
		say(token)
		expect("after a reload, an older token", token)
		token = mint("REAL-token-9876543210")
		say(token)
		expect("after a reload, a new token", token)
		reload(t, w)
		do(t, c, request(t, "POST", "https://"+apiHost+"/say", strings.NewReader("REAL-token-9876543210")))
		expect("after its secret is gone", token)
	}
}

// TestI10_TokensMintedAcrossAReload is known to the state that is in force when it comes.
func TestI10_TokensMintedAcrossAReload(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{true, false} {
		asked, hold := make(chan struct{}), make(chan struct{})
		s := secretIn(t, header("Authorization"))
		s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				close(asked)
				<-hold
			}
			_, _ = io.WriteString(rw, `{"access_token":"REAL-token-0123456789"}`)
		}, withSecret(s))
		c := w.client(apiHost, apiAddr, true)
		got := make(chan string, 1)
		go func() {
			resp, err := c.Do(request(t, "GET", "https://"+apiHost+"/token", nil))
			if err != nil {
				got <- err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got <- string(body)
		}()
		<-asked
		if stays {
			reload(t, w, s)
		} else {
			reload(t, w)
		}
		close(hold)
		var tokens map[string]string
		if body := <-got; json.Unmarshal([]byte(body), &tokens) != nil || strings.Contains(body, "REAL") {
			t.Fatalf("secret stays %v: the guest got %s", stays, body)
		}
		for range 2 {
			_, body := do(t, c, request(t, "GET", "https://"+apiHost+"/elsewhere", nil, "Authorization", tokens["access_token"]))
			if strings.Contains(body, "REAL") {
				t.Errorf("secret stays %v: shown elsewhere: %s", stays, body)
			}
			if works := strings.Contains(w.api.bytes(), "Authorization: REAL-token"); works != stays {
				t.Errorf("secret stays %v: the token works: %v", stays, works)
			}
			if stays {
				reload(t, w, s)
			}
		}
	}
}

// TestI10_TheFirstSecretEndsUnsearchedAnswers: an answer that began when there was none was asked for without
// care, and goes out unsearched.
func TestI10_TheFirstSecretEndsUnsearchedAnswers(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	c := w.client(apiHost, apiAddr, true)
	resp, err := c.Do(request(t, "GET", "https://"+apiHost+"/events", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	reload(t, w, secretIn(t, header("Authorization")))
	do(t, c, request(t, "POST", "https://"+apiHost+"/say", nil, "Authorization", w.placeholder()))
	if body, err := io.ReadAll(resp.Body); err == nil || strings.Contains(string(body), realValue) {
		t.Errorf("the stream went on: %q, %v", body, err)
	}
}
