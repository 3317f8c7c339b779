package secretproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
)

// TestI10_RangeLikeFieldsAreDropped: services know ranges by names of their own. The server here serves what
// it stored by any of them; without a secret the guest gets the part.
func TestI10_RangeLikeFieldsAreDropped(t *testing.T) {
	t.Parallel()
	names := []string{"Range", "If-Range", "x-ms-range", "X-Amz-Range", "Request-Range", "X_Ms_Range", "x-goog-byte-range", "X-RANGES", "Unless-Range", "x-amz-copy-source-range"}
	handler := func(rw http.ResponseWriter, r *http.Request) {
		for name, v := range r.Header {
			if strings.Contains(strings.ToLower(name), "range") {
				r.Header.Set("Range", v[0])
			}
		}
		http.ServeContent(rw, r, "blob.txt", time.Time{}, bytes.NewReader([]byte("it is "+realValue)))
	}
	w := newWorld(t, handler, withSecret(secretIn(t, policies.Place{Kind: policies.InBody})))
	open := newWorld(t, handler)
	for _, http2 := range []bool{false, true} {
		for _, name := range names {
			ask := func(w *world) (int, string) {
				resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil, name, "bytes=0-14"))
				return resp.StatusCode, body
			}
			if status, body := ask(w); status != http.StatusOK || body != "it is "+w.placeholder() {
				t.Errorf("http2 %v: %s: status %d, %q", http2, name, status, body)
			}
			if status, _ := ask(open); status != http.StatusPartialContent && name != "If-Range" {
				t.Errorf("http2 %v: %s without a secret: status %d, which proves nothing", http2, name, status)
			}
		}
		for _, name := range []string{"Content-Range"} {
			before := len(w.api.bytes())
			resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "PUT", "https://"+apiHost+"/", strings.NewReader("part"), name, "bytes 0-3/40"))
			if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, `"range"`) || len(w.api.bytes()) != before {
				t.Errorf("http2 %v: a PUT with %s: status %d, %s", http2, name, resp.StatusCode, body)
			}
		}
	}
}

// TestI10_UnreadableCharsetsAreNotOffered: in EBCDIC a value is no spelling that anything here knows.
func TestI10_UnreadableCharsetsAreNotOffered(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		for said := range strings.Lines(r.URL.Query().Get("say")) { // each in a field
			rw.Header().Add("Content-Type", "text/plain; charset="+strings.TrimSpace(said))
		}
		_, _ = io.WriteString(rw, r.Header.Get("Accept")+"|"+r.Header.Get("Accept-Charset"))
	})
	c := w.client(apiHost, apiAddr, true)
	for accept, want := range map[string]string{
		"text/plain;charset=IBM037":                          "text/plain",
		"text/html; Charset = \"cp500\";q=0.5, text/*":       "text/html;q=0.5, text/*",
		"text/plain;charset=utf-7,*/*;charset=utf-8":         "text/plain,*/*;charset=utf-8",
		"application/json;charset=ISO-8859-1, text/x;v=b3;q": "application/json;charset=ISO-8859-1, text/x;v=b3;q",
	} {
		if _, body := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "Accept", accept, "Accept-Charset", "IBM037")); body != want+"|" {
			t.Errorf("%s: the server got %q, want %q", accept, body, want)
		}
	}
	for said, want := range map[string]int{
		"utf-8": 200, "windows-1252": 200, "GB2312": 200, "Shift_JIS": 200, "utf-16le": 200,
		"IBM037": 502, "cp1047": 502, "UTF-7": 502, "utf-32": 502, "x-own": 502, "iso-2022-jp": 502,
		"utf-8%3B+charset%3Dutf-7": 502, "%22utf-7%22": 502, "utf-8%3B+charset*%3Dus-ascii'en'IBM037": 502,
		"utf-8%3B+charset*%3Dus-ascii'en'utf-8": 200, "utf-8%0AIBM037": 502,
	} {
		resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/?say="+said, nil))
		if resp.StatusCode != want || want != 200 && !strings.Contains(body, "unmaskable_encoding") {
			t.Errorf("an answer in %s: status %d, %.100s", said, resp.StatusCode, body)
		}
	}
}

// TestI17_OnlyIdentityIsAskedFor: the pieces of a compressed answer, and when they come, follow its length before it
// was masked. Without a secret the field goes through.
func TestI17_OnlyIdentityIsAskedFor(t *testing.T) {
	t.Parallel()
	asked := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, "%q", r.Header["Accept-Encoding"])
	}
	with, without := wantsSecret(t, asked), newWorld(t, asked)
	for _, http2 := range []bool{false, true} {
		for _, fields := range [][]string{nil, {"gzip"}, {"br, zstd, *"}, {"identity;q=0, gzip"}, {"deflate", "x-gzip"}, {""}} {
			r := request(t, "GET", "https://"+apiHost+"/", nil)
			if r.Header["Accept-Encoding"] = fields; fields == nil {
				delete(r.Header, "Accept-Encoding")
			}
			if _, body := do(t, with.client(apiHost, apiAddr, http2), r.Clone(t.Context())); body != `["identity"]` {
				t.Errorf("http2 %v: of %q the server got %s", http2, fields, body)
			}
			if _, body := do(t, without.client(apiHost, apiAddr, http2), r); body != fmt.Sprintf("%q", fields) {
				t.Errorf("http2 %v: without a secret, of %q the server got %s", http2, fields, body)
			}
		}
	}
}

// TestI10_AFoldedFieldIsLeftOut: a server folds a long field over lines, in the middle of a value or of a word of it.
func TestI10_AFoldedFieldIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, value := range []string{realValue, "correct horse battery staple"} {
		s := secretIn(t, header("Authorization"))
		if err := os.WriteFile(s.From.Value, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			begin, end := value[:12], value[12:]
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Long: it is "+begin+"\r\n\t"+end+"\r\nX-Two: "+value+" and "+begin+"\r\n "+end+
				"\r\nX-Plain: a b c\r\nX-Begin: "+begin+"\r\n d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}, withSecret(s))
		w.api.EnableHTTP2 = false
		w.api.TLS.NextProtos = []string{"http/1.1"}
		resp, _ := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil))
		if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Long")+resp.Header.Get("X-Two") != "" || resp.Header.Get("X-Plain") != "a b c" || resp.Header.Get("X-Begin") != value[:12]+" d" {
			t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
		}
	}
}
