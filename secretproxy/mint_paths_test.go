package secretproxy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/policies"
)

// tokenCase is an answer that holds tokens.
type tokenCase struct {
	name, path, kind, body, how string
	status                      int
}

// tokenCases is a world whose server answers ?case=n with that case. Each n has
// tokens of its own: none is masked because another case had it minted.
func tokenCases(t *testing.T, cases []tokenCase) (ask func(n int, path string, http2 bool) (*http.Response, string)) {
	t.Helper()
	w := everyPathWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("case"))
		if err != nil {
			t.Error(err)
			return
		}
		c := cases[n%len(cases)]
		sendsAs(c.status, c.kind, ownTokens(n, c.body), c.how)(rw, r)
	})
	return func(n int, path string, http2 bool) (*http.Response, string) {
		return do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", fmt.Sprintf("https://%s%s?case=%d", apiHost, path, n), nil, "Accept-Encoding", "gzip"))
	}
}

// ownTokens makes the tokens of a body others than those of every other n.
func ownTokens(n int, body string) string {
	return strings.ReplaceAll(body, "0000", fmt.Sprintf("%04d", n+1))
}

// everyPathWorld has a secret whose tokens come at /oauth/token, and a server that
// answers everything with answer.
func everyPathWorld(t *testing.T, answer http.HandlerFunc) *world {
	t.Helper()
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token", "refresh_token"}}
	return newWorld(t, answer, withSecret(s))
}

// sendsAs answers with a body in a content type, and in a way of sending it.
func sendsAs(status int, kind, body, how string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		w.Header().Set("X-Copy", tokenOf.FindString(body))
		data := []byte(body)
		if how == "gzip" {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(data)
			_ = z.Close()
			data = packed.Bytes()
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.WriteHeader(status)
		if how != "flushed" {
			_, _ = w.Write(data)
			return
		}
		for len(data) > 0 {
			n := min(len(data), 7)
			_, _ = w.Write(data[:n])
			_ = http.NewResponseController(w).Flush()
			data = data[n:]
		}
	}
}

// tokenOf finds tokenA of any n.
var tokenOf = regexp.MustCompile(`tokenA-q8Zk-\d{4}-pLr7`)

const (
	tokenA = "tokenA-q8Zk-0000-pLr7"
	tokenB = "tokenB-Yt5N-0000-9sHc"
)

// TestI8_TokensAreMintedAtEveryPath asks for a token where a server may give it
// beside the path of the policy, in every form that a client takes for JSON.
func TestI8_TokensAreMintedAtEveryPath(t *testing.T) {
	t.Parallel()
	both := `{"access_token":"` + tokenA + `","refresh_token":"` + tokenB + `"}`
	cases := []tokenCase{
		{"suffix", "/oauth/token.json", "application/json", both, "", 200},
		{"below", "/oauth/token/x", "application/json", both, "", 200},
		{"parameter", "/oauth/token;x", "application/json", both, "", 200},
		{"script", "/index.php/oauth/token", "application/json", both, "", 200},
		{"elsewhere", "/api/v4/session", "application/json; charset=utf-8", both, "", 201},
		{"root", "/", "application/vnd.api+json", both, "", 200},
		{"status", "/x", "application/json", both, "", 400},
		{"no type", "/x", "", both, "", 200},
		{"text", "/x", "text/plain", both, "", 200},
		{"binary", "/x", "application/octet-stream", both, "", 200},
		{"gzip", "/x", "application/json", both, "gzip", 200},
		{"pieces", "/x", "application/json", both, "flushed", 200},
		{"escaped name", "/x", "application/json", `{"access\u005ftoken":"` + tokenA + `","\u0072efresh_token":"` + tokenB + `"}`, "", 200},
		{"escaped value", "/x", "application/json", `{"access_token":"\u0074okenA-q8Zk-0000-pLr7","refresh_token":"tokenB\u002dYt5N-0000-9sHc"}`, "", 200},
		{"twice", "/x", "application/json", `{"access_token":"` + tokenA + `","access_token":"` + tokenB + `"}`, "", 200},
		{"twice, escaped", "/x", "application/json", `{"access\u005ftoken":"` + tokenA + `","access_token":"` + tokenB + `"}`, "", 200},
		{"another case", "/x", "application/json", `{"Access_Token":"` + tokenA + `","REFRESH_TOKEN":"` + tokenB + `"}`, "", 200},
		{"white space", "/x", "application/json", strings.Repeat(" \n", 9000) + both, "", 200},
		{"mark", "/x", "application/json", "\xef\xbb\xbf" + both, "", 200},
		{"behind nests", "/x", "application/json", `{"a":[{"b":[1,{"access_token":2}]}],"c":{"d":null},` + both[1:], "", 200},
		{"and elsewhere in it", "/x", "application/json", `{"note":"` + tokenB + `",` + both[1:], "", 200},
		{"line of many", "/x", "application/x-ndjson", both + "\n" + `{"again":"` + tokenA + `"}` + "\n", "", 200},
		{"broken off", "/x", "application/json", both[:len(both)-1] + `,"x":`, "", 200},
		{"too large", "/x", "application/json", both[:len(both)-1] + `,"x":"` + strings.Repeat("x", maxTokenAnswer) + `"}`, "", 200},
		{"at the path", "/oauth/token", "application/json", both, "", 200},
		{"at the path, gzip", "/oauth/token", "application/json", both, "gzip", 200},
		{"at the path, twice", "/oauth/token", "application/json", `{"access_token":"` + tokenA + `","access_token":"` + tokenB + `"}`, "", 200},
		{"at the path, null", "/oauth/token", "application/json", `{"access_token":null,"access_token":"","refresh_token":"` + tokenA + `","access_token":"` + tokenB + `"}`, "", 200},
		{"at the path, refused", "/oauth/token", "application/json", both, "", 401},
	}
	var ask func(n int, path string, http2 bool) (*http.Response, string)
	for n := range 2 * len(cases) {
		c, http2 := cases[n%len(cases)], n >= len(cases)
		if n%10 == 0 { // each token makes the next ones dearer
			ask = tokenCases(t, cases)
		}
		resp, body := ask(n, c.path, http2)
		if resp.StatusCode != c.status {
			t.Errorf("%s (http2 %v): status %d, want %d: %.200s", c.name, http2, resp.StatusCode, c.status, body)
		}
		plain := strings.NewReplacer(`\u0074`, "t", `\u002d`, "-").Replace(body) + strings.Join(resp.Header["X-Copy"], "")
		if strings.Contains(plain, "q8Zk") || strings.Contains(plain, "Yt5N") {
			t.Errorf("%s (http2 %v): the guest got %.300s, %q", c.name, http2, body, resp.Header)
		}
		if strings.Count(body, "msb_") < 2 {
			t.Errorf("%s (http2 %v): no placeholders in %.300s", c.name, http2, body)
		}
		if len(body) < 1000 && json.Valid([]byte(c.body)) && !json.Valid([]byte(body)) {
			t.Errorf("%s (http2 %v): no JSON any more: %s", c.name, http2, body)
		}
	}
}

// TestI8_TokensOfLiveAnswersAreMinted: the head of an answer without a length goes out before its body comes, if its
// type is none of JSON. An object in it is read whole before any of it is passed on; from a host of no secret it
// passes as it came.
func TestI8_TokensOfLiveAnswersAreMinted(t *testing.T) {
	t.Parallel()
	headArrived := make(chan struct{}, 1)
	w := everyPathWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", r.URL.Query().Get("type"))
		_ = http.NewResponseController(rw).Flush()
		<-headArrived
		sendsAs(0, "", ownTokens(len(r.URL.Path), r.URL.Query().Get("body")), "flushed")(bodyOnly{rw}, r)
	})
	n := 0
	for _, kind := range []string{"application/octet-stream", "application/x-www-form-urlencoded", "image/png", "text/event-stream", "application/grpc", "application/x-protobuf"} {
		for _, http2 := range []bool{false, true} {
			for _, body := range []string{`{"access_token":"` + tokenA + `"}`, "\r\n {\"a\":[{}],\"access_token\":\"" + tokenA + "\"}\n{}"} {
				n++
				query := "/" + strings.Repeat("x", n) + "?" + url.Values{"type": {kind}, "body": {body}}.Encode()
				ask := func(name string, dst netip.AddrPort) string {
					resp, err := w.client(name, dst, http2).Do(request(t, "GET", "https://"+name+query, nil))
					if err != nil {
						t.Fatal(err)
					}
					headArrived <- struct{}{}
					defer resp.Body.Close()
					got, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Errorf("%s (http2 %v): %v", kind, http2, err)
					}
					return string(got)
				}
				if got := ask(evilHost, evilAddr); !strings.Contains(got, "q8Zk") {
					t.Errorf("%s (http2 %v): a host of no secret: %q", kind, http2, got)
				}
				if got := ask(apiHost, apiAddr); strings.Contains(got, "q8Zk") || strings.Count(got, "msb_") != 1 {
					t.Errorf("%s (http2 %v): the guest got %q", kind, http2, got)
				}
			}
		}
	}
}

// bodyOnly takes a body for an answer whose head has gone out.
type bodyOnly struct{ http.ResponseWriter }

// Header implements http.ResponseWriter.
func (bodyOnly) Header() http.Header { return make(http.Header) }

// WriteHeader implements http.ResponseWriter.
func (bodyOnly) WriteHeader(int) {}

// Unwrap is for http.ResponseController.
func (b bodyOnly) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// TestI8_UnreadableTokensAreRefused is the twin: what can't be read is refused at
// the path of the policy, and passes elsewhere as it came, even live.
func TestI8_UnreadableTokensAreRefused(t *testing.T) {
	t.Parallel()
	object := `{"access_token":"` + tokenA + `"}`
	var cases []tokenCase
	for name, body := range map[string]string{
		"form": "access_token=" + tokenA, "array": "[" + object + "]", "lines": object + "\n" + object, "mark": "\xef\xbb\xbf" + object,
		"utf-16": "\xff\xfe" + strings.Join(strings.Split(object, ""), "\x00") + "\x00", "guard": ")]}'\n" + object,
		"broken off": object[:len(object)-1], "number": `{"access_token":12345678901234567890,"x":"` + tokenA + `"}`,
		"object": `{"access_token":{"v":"` + tokenA + `"}}`, "text": `"` + tokenA + `"`,
		"large": `{"a":"` + strings.Repeat("x", maxTokenAnswer) + `",` + object[1:],
	} {
		cases = append(cases, tokenCase{name: name, kind: "application/json", body: body, status: http.StatusOK}, tokenCase{name: name, kind: "text/plain", body: body, how: "gzip", status: http.StatusOK})
		if len(body) < 1000 {
			cases = append(cases, tokenCase{name: name, kind: "application/json", body: body, how: "flushed", status: http.StatusOK})
		}
	}
	ask := tokenCases(t, cases)
	for n, c := range cases {
		if c.name == "utf-16" { // refused everywhere: TestI10_TokensInUTF16AreRefused
		} else if resp, got := ask(2*len(cases)+n, "/other", n%2 == 0); resp.StatusCode != http.StatusOK || c.name != "lines" && c.name != "mark" && c.name != "broken off" && got != ownTokens(2*len(cases)+n, c.body) {
			t.Errorf("%s %s elsewhere: status %d: %.200s", c.name, c.how, resp.StatusCode, got)
		}
		if resp, got := ask(n, "/oauth/token", n%2 == 1); resp.StatusCode != http.StatusBadGateway || strings.Contains(got, "q8Zk") || resp.Header.Get("X-Copy") != "" {
			t.Errorf("%s %s: status %d: %.200s", c.name, c.how, resp.StatusCode, got)
		}
	}
}

// TestI8_UnmintableTokensAreRefused has texts that no placeholder could
// stand for: at every path none of them passes.
func TestI8_UnmintableTokensAreRefused(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", maxTokenDepth+1) + strings.Repeat("]", maxTokenDepth+1)
	for name, token := range map[string]string{
		"deep": `","nest":` + deep + `,"access_token":"q8Zk3vW0-token`, "long": strings.Repeat("q8Zk3vW0", 1025), "no UTF-8": "q8Zk3vW0\xff-token", "half a character": `q8Zk3vW0\ud800-token`,
	} {
		w := everyPathWorld(t, sendsAs(200, "application/json", `{"access_token":"`+token+`"}`, ""))
		for _, path := range []string{"/oauth/token", "/other"} {
			resp, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+path, nil))
			if resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "q8Zk3vW0") {
				t.Errorf("%s at %s: status %d: %.200s", name, path, resp.StatusCode, body)
			}
		}
	}
}

// TestMintedHostsStreamsStayLive reads the beginning of answers that never end
// from a host whose tokens are minted.
func TestMintedHostsStreamsStayLive(t *testing.T) {
	t.Parallel()
	for kind, first := range map[string]string{
		"application/json":    `{"type":"ADDED"}` + "\n",
		"text/event-stream":   "data: {}\n\n",
		"text/plain":          "hello, world\n",
		"application/grpc":    "",
		"multipart/x-replace": "",
	} {
		for _, http2 := range []bool{false, true} {
			end := make(chan struct{})
			w := everyPathWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(rw, first)
				_ = http.NewResponseController(rw).Flush()
				select {
				case <-end:
				case <-r.Context().Done():
				}
			})
			resp, err := w.client(apiHost, apiAddr, http2).Do(request(t, "GET", "https://"+apiHost+"/watch", nil))
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(first))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != first {
				t.Errorf("%s (http2 %v): %q, %v; want %q while it goes on", kind, http2, got, err, first)
			}
			close(end)
			_ = resp.Body.Close()
		}
	}
}

// TestI11_TokenSearchIsBounded has a server whose gzip body goes on, without a byte of content, for far more than is
// searched.
func TestI11_TokenSearchIsBounded(t *testing.T) {
	t.Parallel()
	var empty bytes.Buffer
	_ = gzip.NewWriter(&empty).Close()
	member := bytes.Repeat(empty.Bytes(), 1000)
	for path, most := range map[string]int64{"/oauth/token": 64 << 20, "/other": 8 << 20} {
		var sent atomic.Int64
		w := everyPathWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.Header().Set("Content-Encoding", "gzip")
			for sent.Load() < most {
				n, err := rw.Write(member)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		resp, err := w.client(apiHost, apiAddr, false).Do(request(t, "GET", "https://"+apiHost+path, nil, "Accept-Encoding", "gzip"))
		if err != nil {
			t.Fatal(err)
		}
		want := http.StatusOK
		if path == "/oauth/token" {
			want = http.StatusBadGateway
		}
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, want)
		}
		if n := sent.Load(); path == "/oauth/token" && n > 32<<20 {
			t.Errorf("%d bytes were read", n)
		}
		_ = resp.Body.Close()
	}
}

// TestMintPathTellsOtherFaults has answers at the path of the policy that are none
// of minting: a refusal in HTML, and one that breaks off.
func TestMintPathTellsOtherFaults(t *testing.T) {
	t.Parallel()
	w := everyPathWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "html" {
			rw.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(rw, "<p>no")
			return
		}
		rw.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(rw, `{"access_token":"`)
	})
	for _, http2 := range []bool{false, true} {
		c := w.client(apiHost, apiAddr, http2)
		if resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/oauth/token?html", nil)); resp.StatusCode != http.StatusForbidden || body != "<p>no" {
			t.Errorf("status %d: %s", resp.StatusCode, body)
		}
		if resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/oauth/token", nil)); resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "mint") {
			t.Errorf("status %d: %s", resp.StatusCode, body)
		}
	}
}
