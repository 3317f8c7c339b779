package secretproxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// compress returns body in that content encoding.
func compress(t *testing.T, encoding, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := encoder(t, encoding, &out)
	if w == nil {
		return []byte(body)
	}
	if _, err := w.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// wantsSecret is a world whose handler answers, once the value reached it.
func wantsSecret(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	return newWorld(t, handler, withSecret(secretIn(t, header("Authorization"))))
}

// TestAnswersThatBreakOffAreErrors: of a small answer nothing is given out before it was all there.
func TestAnswersThatBreakOffAreErrors(t *testing.T) {
	t.Parallel()
	for _, there := range []int{0, 1, 999, 1000} {
		w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(rw, strings.Repeat("x", there))
		})
		resp, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/", nil))
		want := http.StatusBadGateway
		if there == 1000 {
			want = http.StatusOK
		}
		if resp.StatusCode != want || want != http.StatusOK && strings.Contains(body, "xx") {
			t.Errorf("%d of 1000 bytes: status %d, %.80q", there, resp.StatusCode, body)
		}
	}
}

func TestI10_BodiesInEveryEncodingAreMasked(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"", "gzip", "deflate", "br", "zstd"} {
		for _, size := range []int{10, 100_000} {
			for _, flushed := range []bool{false, true} {
				filler := strings.Repeat("x", size)
				w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
					if encoding != "" {
						rw.Header().Set("Content-Encoding", encoding)
					}
					data := compress(t, encoding, filler+realValue+filler+url.QueryEscape(realValue))
					if !flushed {
						_, _ = rw.Write(data)
						return
					}
					for i, b := range data {
						_, _ = rw.Write([]byte{b})
						if i%97 == 0 {
							_ = http.NewResponseController(rw).Flush()
						}
					}
				})
				for _, http2 := range []bool{false, true} {
					resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder(), "Accept-Encoding", "gzip, br, zstd, deflate, unknown"))
					if want := filler + w.placeholder() + filler + w.placeholder(); body != want {
						t.Errorf("%q size %d flushed %v http2 %v: status %d, got %d bytes ending %q", encoding, size, flushed, http2, resp.StatusCode, len(body), body[max(0, len(body)-100):])
					}
					if resp.Header.Get("Content-Encoding") != "" {
						t.Errorf("%q: Content-Encoding is still there", encoding)
					}
				}
			}
		}
	}
}

func TestI10_UnreadableEncodingsAreNotOffered(t *testing.T) {
	t.Parallel()
	var offered string
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		offered = r.Header.Get("Accept-Encoding") + "|" + r.Header.Get("Range") + "|" + r.Header.Get("If-Range")
		rw.Header().Set("Content-Encoding", "compress")
		_, _ = rw.Write([]byte("???"))
	})
	resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil,
		"Accept-Encoding", "compress, gzip;q=0.5, *", "Range", "bytes=0-5", "If-Range", `"x"`))
	if offered != "identity||" {
		t.Errorf("the server was offered %q", offered)
	}
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "unmaskable_encoding") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func TestI10_EveryHeaderKindIsMasked(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Link", "</"+realValue+">; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		h := rw.Header()
		h.Del("Link")
		h.Set("Trailer", "X-End")
		h.Set("Location", "https://"+evilHost+"/?t="+url.QueryEscape(realValue))
		h.Add("Set-Cookie", "t="+realValue+"; Path=/")
		h.Add("X-Basic", basicAuth("user", realValue))
		rw.WriteHeader(http.StatusFound)
		_, _ = rw.Write([]byte("moved"))
		h.Set("X-End", realValue)
		h.Set(http.TrailerPrefix+"X-Late", realValue)
	})
	for _, http2 := range []bool{false, true} {
		var hint string
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hint = fmt.Sprint(code, h)
			return nil
		}})
		r := request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()).WithContext(ctx)
		resp, body := do(t, w.client(apiHost, apiAddr, http2), r)
		all := fmt.Sprint(resp.Header, resp.Trailer, body, hint)
		if strings.Contains(all, realValue) || strings.Contains(all, url.QueryEscape(realValue)) || strings.Contains(all, basicAuth("user", realValue)) {
			t.Errorf("http2 %v: the guest got %s", http2, all)
		}
		p := w.placeholder()
		if resp.Trailer.Get("X-End") != p || resp.Trailer.Get("X-Late") != p || resp.Header.Get("X-Basic") != basicAuth("user", p) || !strings.Contains(hint, p) {
			t.Errorf("http2 %v: the guest got %s", http2, all)
		}
	}
}

func TestI10_HeadAndNotModifiedGoThrough(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("ETag", `"a"`)
		if r.Header.Get("If-None-Match") != "" {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("Content-Length", "1234")
	})
	for _, http2 := range []bool{false, true} {
		c := w.client(apiHost, apiAddr, http2)
		resp, _ := do(t, c, request(t, "HEAD", "https://"+apiHost+"/", nil))
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Length") != "" {
			t.Errorf("http2 %v: HEAD: status %d, length %d", http2, resp.StatusCode, resp.ContentLength)
		}
		resp, _ = do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "If-None-Match", `"a"`))
		if resp.StatusCode != http.StatusNotModified {
			t.Errorf("http2 %v: status %d, want 304", http2, resp.StatusCode)
		}
	}
}

// TestI17_NoLengthOnMaskedAnswers: a page that is compressed gets shorter by every character of a guess that is
// right. Its length is in no field, whatever the method, status and encoding; without a secret it is.
func TestI17_NoLengthOnMaskedAnswers(t *testing.T) {
	t.Parallel()
	handler := func(rw http.ResponseWriter, r *http.Request) {
		body := compress(t, "gzip", "token "+realValue+" "+r.URL.Query().Get("guess"))
		if r.URL.Path == "/plain" {
			body = []byte("token " + realValue)
		} else {
			rw.Header().Set("Content-Encoding", "gzip")
		}
		for _, name := range []string{"Content-Length", "X-Uncompressed-Content-Length", "X-Goog-Stored-Content-Length"} {
			rw.Header().Set(name, fmt.Sprint(len(body)))
		}
		rw.Header().Set("Content-Md5", "unmasked")
		if r.URL.Path == "/404" {
			rw.WriteHeader(http.StatusNotFound)
		}
		if r.Method != http.MethodHead {
			_, _ = rw.Write(body)
		}
	}
	w, open := wantsSecret(t, handler), newWorld(t, handler)
	for _, http2 := range []bool{false, true} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for _, path := range []string{"/", "/plain", "/404"} {
				head := func(w *world) (int64, string) {
					resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, method, "https://"+apiHost+path+"?guess="+realValue[:20], nil))
					if strings.Contains(body, realValue) && w != open {
						t.Errorf("the guest got %q", body)
					}
					if w != open && method != "HEAD" && !strings.HasPrefix(body, "token "+w.placeholder()) {
						t.Errorf("%s %s: the guest got %q", method, path, body)
					}
					return resp.ContentLength, fmt.Sprint(resp.Header)
				}
				if n, h := head(w); strings.Contains(h, "Length") || strings.Contains(h, "Md5") || n > 0 {
					t.Errorf("http2 %v: %s %s: length %d, %s", http2, method, path, n, h)
				}
				if _, h := head(open); !strings.Contains(h, "Stored-Content-Length") {
					t.Errorf("http2 %v: %s %s without a secret: %s", http2, method, path, h)
				}
			}
		}
	}
}

func TestServerSentEventsArriveSingly(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"", "gzip"} {
		next := make(chan struct{})
		w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			var out io.Writer = rw
			flush := func() { _ = http.NewResponseController(rw).Flush() }
			if encoding == "gzip" {
				rw.Header().Set("Content-Encoding", "gzip")
				zip := gzip.NewWriter(rw)
				out = zip
				plain := flush
				flush = func() { _ = zip.Flush(); plain() }
			}
			for i := range 5 {
				_, _ = fmt.Fprintf(out, "data: %d %s\n\n", i, realValue)
				flush()
				<-next
			}
		})
		for _, http2 := range []bool{false, true} {
			resp, err := w.client(apiHost, apiAddr, http2).Do(request(t, "GET", "https://"+apiHost+"/", nil, "Accept-Encoding", "gzip"))
			if err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReader(resp.Body)
			for i := range 5 {
				line, err := br.ReadString('\n')
				if want := fmt.Sprintf("data: %d %s\n", i, w.placeholder()); err != nil || line != want {
					t.Errorf("%q http2 %v: got %q, %v; want %q", encoding, http2, line, err, want)
				}
				_, _ = br.ReadString('\n')
				next <- struct{}{}
			}
			_ = resp.Body.Close()
		}
	}
}

func TestRequestAndResponseStreamAtOnce(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(rw)
		_ = c.EnableFullDuplex()
		rw.Header().Set("Trailer", "Grpc-Status")
		rw.Header().Set("Content-Type", "application/grpc")
		rw.WriteHeader(http.StatusOK)
		_ = c.Flush()
		br := bufio.NewReader(r.Body)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				break
			}
			_, _ = io.WriteString(rw, "got "+line)
			_ = c.Flush()
		}
		rw.Header().Set("Grpc-Status", r.Trailer.Get("X-Sum"))
	})
	for _, http2 := range []bool{false, true} {
		pr, pw := io.Pipe()
		r := request(t, "POST", "https://"+apiHost+"/", pr, "Te", "trailers", "Authorization", w.placeholder())
		r.Trailer = http.Header{"X-Sum": nil}
		resp, err := w.client(apiHost, apiAddr, http2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(resp.Body)
		for i := range 5 {
			_, _ = fmt.Fprintf(pw, "message %d\n", i)
			line, err := br.ReadString('\n')
			if want := fmt.Sprintf("got message %d\n", i); err != nil || line != want {
				t.Fatalf("http2 %v: got %q, %v; want %q", http2, line, err, want)
			}
		}
		r.Trailer.Set("X-Sum", "7")
		_ = pw.Close()
		if _, err := io.Copy(io.Discard, br); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
		if got := resp.Trailer.Get("Grpc-Status"); got != "7" {
			t.Errorf("http2 %v: trailer %q, want 7", http2, got)
		}
	}
}

func TestExpectContinueWaitsForTheServer(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(body)
	})
	for path, want := range map[string][]string{"/yes": {"100", "200"}, "/no": {"417"}} {
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: "+apiHost+"\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		br := bufio.NewReader(c)
		line, err := br.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+want[0]) {
			t.Fatalf("%s: got %q, %v; want %s", path, line, err, want[0])
		}
		if want[0] == "100" {
			_, _ = br.ReadString('\n')
			_, _ = io.WriteString(c, "hello")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != "hello" {
				t.Errorf("got %q", body)
			}
		}
	}
}

// upgrading answers an Upgrade with 101 and then echoes, or refuses.
func upgrading(t *testing.T) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" || r.Header.Get("Authorization") != realValue {
			http.Error(rw, "no "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\nX-Echo: "+r.Header.Get("Authorization")+"\r\n\r\n")
		_, _ = io.Copy(conn, buffered.Reader)
	}
}

func TestNamedUpgradesPassUntouched(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"Spdy/3.1", "custom/1"} {
		s := secretIn(t, header("Authorization"))
		s.Upgrades = []string{"spdy/3.1", "custom/1"}
		w := newWorld(t, upgrading(t), withSecret(s))
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		early := "early " + w.placeholder() + "\n"
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\nAuthorization: "+w.placeholder()+"\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n"+early)
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != protocol || resp.Header.Get("X-Echo") != w.placeholder() {
			t.Errorf("%s: status %d, %v", protocol, resp.StatusCode, resp.Header)
		}
		late := "\x00\xff\n" + w.placeholder() + "\n"
		_, _ = io.WriteString(c, late)
		got := make([]byte, len(early)+len(late))
		if _, err := io.ReadFull(br, got); err != nil || string(got) != early+late {
			t.Errorf("%s: got %q, %v; want what was sent, unchanged", protocol, got, err)
		}
		_ = c.Close()
	}
}

func TestRefusedUpgradesEndConnections(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, upgrading(t))
	c := w.tlsConn(apiHost, apiAddr, "http/1.1")
	_, _ = io.WriteString(c, "GET /no HTTP/1.1\r\nHost: "+apiHost+"\r\nAuthorization: "+w.placeholder()+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+
		"GET /second HTTP/1.1\nHost: "+apiHost+"\n\n")
	all, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(all), "HTTP/1.1 401") || strings.Contains(string(all), realValue) || strings.Count(string(all), "HTTP/1.1") != 1 {
		t.Errorf("got %q", all)
	}
	if strings.Contains(w.api.bytes(), "/second") {
		t.Errorf("the server got %q", w.api.bytes())
	}
}

func TestHTTPAndTLSUpgradesAreRefused(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"h2c", "websocket, H2C", "TLS/1.2", "HTTP/2.0", "websocket, http/1.1"} {
		w := newWorld(t, echo)
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || strings.Contains(w.api.bytes(), "Upgrade") {
			t.Errorf("%s: status %d; the server got %q", protocol, resp.StatusCode, w.api.bytes())
		}
	}
}

func TestLargeBodiesStreamBothWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})))
	for _, http2 := range []bool{false, true} {
		chunk := strings.Repeat("0123456789abcdef", 4096)
		var body strings.Builder
		for range 50 {
			body.WriteString(chunk + w.placeholder())
		}
		resp, got := do(t, w.client(apiHost, apiAddr, http2), request(t, "POST", "https://"+apiHost+"/", strings.NewReader(body.String()), "Content-Type", "text/plain"))
		if resp.StatusCode != http.StatusOK || !strings.HasSuffix(got, body.String()) {
			t.Errorf("http2 %v: status %d, %d bytes", http2, resp.StatusCode, len(got))
		}
		if !strings.Contains(w.api.bytes(), chunk+realValue+chunk) {
			t.Errorf("http2 %v: the server did not get the value", http2)
		}
	}
}
