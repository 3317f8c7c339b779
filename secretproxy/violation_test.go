package secretproxy

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// basicAuth is the value of an Authorization header.
func basicAuth(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func percentAll(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

func jsonAll(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\u%04X`, c)
	}
	return b.String()
}

func TestI9_ListedPlacesGetTheValue(t *testing.T) {
	t.Parallel()
	basic := policies.Place{Kind: policies.InBasic}
	body := policies.Place{Kind: policies.InBody}
	quoted := url.QueryEscape(realValue)
	cases := []struct {
		name   string
		places []policies.Place
		build  func(p string) *http.Request
		want   string
	}{
		{"header", []policies.Place{header("Authorization")}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", "token "+p)
		}, "Authorization: token " + realValue},
		{"another header", []policies.Place{header("X-Api-Key")}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "x-api-key", p)
		}, "X-Api-Key: " + realValue},
		{"basic password", []policies.Place{basic}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", basicAuth("user", p))
		}, "Authorization: " + basicAuth("user", realValue)},
		{"basic user", []policies.Place{basic}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", basicAuth(p, "x"))
		}, "Authorization: " + basicAuth(realValue, "x")},
		{"query", []policies.Place{query("token")}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/?a=%41&b&token="+p+"&c", nil)
		}, "/?a=%41&b&token=" + quoted + "&c\n"},
		{"JSON body", []policies.Place{body}, func(p string) *http.Request {
			return request(t, "POST", "https://"+apiHost+"/", strings.NewReader(`{"t":"`+p+`"}`), "Content-Type", "application/json")
		}, `{"t":"` + realValue + `"}`},
		{"form body", []policies.Place{body}, func(p string) *http.Request {
			return request(t, "POST", "https://"+apiHost+"/", strings.NewReader("t="+p), "Content-Type", "application/x-www-form-urlencoded")
		}, "\nt=" + quoted},
		{"twice", []policies.Place{header("Authorization")}, func(p string) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", p+" "+p)
		}, "Authorization: " + realValue + " " + realValue},
	}
	tried := map[policies.PlaceKind]bool{policies.InWebSocket: true} // in websocket_test.go
	for _, c := range cases {
		tried[c.places[0].Kind] = true
	}
	for place := (policies.Place{}); !strings.HasPrefix(place.String(), "invalid"); place.Kind++ {
		if !tried[place.Kind] {
			t.Errorf("no case has a value in the place %s", place)
		}
	}
	for _, c := range cases {
		for _, http2 := range []bool{false, true} {
			w := newWorld(t, echo, withSecret(secretIn(t, c.places...)))
			resp, got := do(t, w.client(apiHost, apiAddr, http2), c.build(w.placeholder()))
			if resp.StatusCode != http.StatusOK || !strings.Contains(w.api.bytes(), c.want) {
				t.Errorf("%s: status %d %s; the server got %q, want %q", c.name, resp.StatusCode, got, w.api.bytes(), c.want)
			}
			if strings.Contains(got, realValue) || strings.Contains(got, quoted) {
				t.Errorf("%s: the guest got %q", c.name, got)
			}
			if n := len(w.events.of(audit.SecretSwap)); n != 1 {
				t.Errorf("%s: %d swap events, want 1", c.name, n)
			}
		}
	}
}

// TestI9_QueriesTakeLineBreaksEscaped sends a value of several lines where it is escaped.
func TestI9_QueriesTakeLineBreaksEscaped(t *testing.T) {
	t.Parallel()
	const value = "first-line-of-it\r\nsecond-line"
	w := newWorld(t, echo, withSecret(secretOf(t, "GITHUB_TOKEN", value, query("key"))))
	resp, got := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/?key="+w.placeholder(), nil))
	if want := "/?key=" + url.QueryEscape(value) + "\n"; resp.StatusCode != http.StatusOK || !strings.Contains(w.api.bytes(), want) {
		t.Errorf("status %d %s; the server got %q, want %q", resp.StatusCode, got, w.api.bytes(), want)
	}
}

func TestI9_PlaceholdersElsewhereAreViolations(t *testing.T) {
	t.Parallel()
	get := func(path string, headers ...string) *http.Request {
		return request(t, "GET", "https://"+apiHost+path, nil, headers...)
	}
	post := func(body string) *http.Request {
		return request(t, "POST", "https://"+apiHost+"/", strings.NewReader(body), "Content-Type", "text/plain")
	}
	cases := map[string]func(p string) *http.Request{
		"path":             func(p string) *http.Request { return get("/x/" + p) },
		"path percent":     func(p string) *http.Request { return get("/" + percentAll(p)) },
		"query":            func(p string) *http.Request { return get("/?q=" + p) },
		"query name":       func(p string) *http.Request { return get("/?" + p + "=1") },
		"query percent":    func(p string) *http.Request { return get("/?q=" + percentAll(p)) },
		"cookie":           func(p string) *http.Request { return get("/", "Cookie", "a=b; t="+p) },
		"referer":          func(p string) *http.Request { return get("/", "Referer", "https://x/"+p) },
		"user agent":       func(p string) *http.Request { return get("/", "User-Agent", p) },
		"header name":      func(p string) *http.Request { return get("/", "X-"+strings.ReplaceAll(p, "_", "_"), "1") },
		"basic not listed": func(p string) *http.Request { return get("/", "Authorization", basicAuth("u", p)) },
		"base64 in header": func(p string) *http.Request {
			return get("/", "Authorization", "Bearer "+base64.StdEncoding.EncodeToString([]byte("x"+p)))
		},
		"base64url": func(p string) *http.Request {
			return get("/", "Authorization", "Bearer "+base64.RawURLEncoding.EncodeToString([]byte("ab"+p)))
		},
		"upper case":        func(p string) *http.Request { return get("/", "Authorization", "Bearer "+strings.ToUpper(p)) },
		"hex":               func(p string) *http.Request { return get("/", "X-Other", hex.EncodeToString([]byte(p))) },
		"percent in header": func(p string) *http.Request { return get("/", "Authorization", percentAll(p)) },
		"json in header":    func(p string) *http.Request { return get("/", "Authorization", jsonAll(p)) },
		"body":              func(p string) *http.Request { return post("text " + p + " text") },
		"body percent":      func(p string) *http.Request { return post(percentAll(p)) },
		"body json":         func(p string) *http.Request { return post(`{"a":"` + jsonAll(p) + `"}`) },
		"body base64":       func(p string) *http.Request { return post(base64.StdEncoding.EncodeToString([]byte("12" + p + "3"))) },
		"body utf-16":       func(p string) *http.Request { return post(strings.Join(strings.Split(p, ""), "\x00")) },
		"body at the end of a megabyte": func(p string) *http.Request {
			return post(strings.Repeat("x", 1<<20) + p)
		},
	}
	for name, build := range cases {
		for _, http2 := range []bool{false, true} {
			w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
			resp, got := do(t, w.client(apiHost, apiAddr, http2), build(w.placeholder()))
			var refused refusalBody
			if err := json.Unmarshal([]byte(got), &refused); err != nil || resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s (http2 %v): status %d: %s", name, http2, resp.StatusCode, got)
				continue
			}
			if refused.Error != "secret_violation" || refused.Secret != "GITHUB_TOKEN" || refused.Reason != "secret_place" {
				t.Errorf("%s (http2 %v): %+v", name, http2, refused)
			}
			if n := len(w.events.of(audit.SecretViolation)); n != 1 {
				t.Errorf("%s (http2 %v): %d violation events, want 1", name, http2, n)
			}
			if s := w.api.bytes(); strings.Contains(s, realValue) || strings.Contains(s, w.placeholder()) {
				t.Errorf("%s (http2 %v): the server got %q", name, http2, s)
			}
		}
	}
}

func TestI9_AnotherHostNeverGetsTheValue(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		c := w.client(evilHost, evilAddr, http2)
		resp, got := do(t, c, request(t, "GET", "https://"+evilHost+"/", nil, "Authorization", "Bearer "+w.placeholder()))
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(got, "secret_host") {
			t.Errorf("status %d: %s", resp.StatusCode, got)
		}
		w.noLeak()
		if strings.Contains(w.evil.bytes(), w.placeholder()) {
			t.Errorf("the wrong server got the placeholder: %q", w.evil.bytes())
		}
	}
}

func TestI9_BypassedHostGetsNoValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))), func(p *policies.Policy, _ *Config) {
		p.TLS.Bypass = append(p.TLS.Bypass, p.Secrets[0].Hosts[0].Pattern)
	})
	resp, got := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
	if resp.StatusCode != http.StatusForbidden || strings.Contains(w.api.bytes(), realValue) {
		t.Errorf("status %d: %s; the server got %q", resp.StatusCode, got, w.api.bytes())
	}
}

func TestViolationTerminatesOnceWhenAsked(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	s.OnViolation = policies.Terminate
	w := newWorld(t, echo, withSecret(s))
	c := w.client(apiHost, apiAddr, true)
	for range 3 {
		do(t, c, request(t, "GET", "https://"+apiHost+"/"+w.placeholder(), nil))
	}
	if err := w.proxy.Close(); err != nil { // waits for the call
		t.Fatal(err)
	}
	if len(w.terminated) != 1 || strings.Contains(w.terminated[0], realValue) {
		t.Errorf("terminated %q, want once and without the value", w.terminated)
	}
}

func TestPlaceholdersPerHeaderAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	for _, http2 := range []bool{false, true} {
		r := request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", strings.Repeat(w.placeholder(), 100000))
		resp, err := w.client(apiHost, apiAddr, http2).Do(r)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.Errorf("http2 %v: status %d, want a refusal for the size of the head", http2, resp.StatusCode)
			}
		}
	}
	if got := w.api.bytes(); got != "" {
		t.Errorf("the server got %d bytes", len(got))
	}
}
