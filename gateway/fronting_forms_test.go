package gateway_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// Each text asks for a denied host in a form that some server accepts, on a connection to an allowed one. The server
// here takes any bytes: what doesn't reach it was refused by the gateway. Uninspected, every text reaches it (twin).
func TestI7_NoRequestFrontsADeniedHost(t *testing.T) {
	t.Parallel()
	const end, good = "\r\n\r\n", "GET / HTTP/1.1\r\nHost: www.example.com\r\n"
	evil := "GET /evil HTTP/1.1\r\nHost: evil.example.com" + end
	forms := map[string]string{
		allowed:                   "",
		"Host":                    evil,
		"pipelined":               good + "\r\n" + evil,
		"absolute target":         "GET https://evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"absolute target, http":   "GET http://evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"userinfo in the target":  "GET https://www.example.com@evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"userinfo in Host":        "GET /evil HTTP/1.1\r\nHost: www.example.com@evil.example.com" + end,
		"Host twice":              good + "Host: evil.example.com" + end,
		"Host twice, turned":      "GET /evil HTTP/1.1\r\nHost: evil.example.com\r\nHost: www.example.com" + end,
		"a list":                  "GET /evil HTTP/1.1\r\nHost: www.example.com, evil.example.com" + end,
		"folded":                  "GET /evil HTTP/1.1\r\nHost: www.example.com\r\n evil.example.com" + end,
		"folded first":            "GET /evil HTTP/1.1\r\n Host: evil.example.com\r\nHost: www.example.com" + end,
		"blank before the colon":  good + "Host : evil.example.com" + end,
		"bare line feed":          good + "X: y\nHost: evil.example.com" + end,
		"bare carriage return":    good + "X: y\rHost: evil.example.com" + end,
		"NUL":                     "GET /evil HTTP/1.1\r\nHost: evil.example.com\x00.www.example.com" + end,
		"dot, port and case":      "GET /evil HTTP/1.1\r\nHost: EVIL.example.com.:443" + end,
		"percent":                 "GET /evil HTTP/1.1\r\nHost: %65vil.example.com" + end,
		"full-width dots":         "GET /evil HTTP/1.1\r\nHost: evil\uff0eexample\uff0ecom" + end,
		"full-width letters":      "GET /evil HTTP/1.1\r\nHost: \uff45vil.example.com" + end,
		"no host":                 "GET /evil HTTP/1.0" + end,
		"an empty host":           "GET /evil HTTP/1.1\r\nHost:" + end,
		"CONNECT":                 "CONNECT evil.example.com:443 HTTP/1.1\r\nHost: www.example.com" + end + evil,
		"length and chunks":       "POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked" + end + "0\r\n\r\n" + evil,
		"two lengths":             "POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 0\r\nContent-Length: 5" + end + evil,
		"chunks of another name":  "POST / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: xchunked" + end + "0\r\n\r\n" + evil,
		"a body that nobody ends": "GET / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 1" + end + evil,
		"h2c":                     good + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__" + end + evil,
		"h2 without ALPN":         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + evil,
	}
	for name, text := range forms {
		text += good + "Connection: close\r\nX-End: " + lastMark + end
		frontForm(t, name, func(c *tls.Conn) []byte {
			return h1Form(t, c, text)
		}, "http/1.1")
	}
	for name, protos := range map[string][]string{"no ALPN": nil, "http/1.0": {"http/1.0", "http/1.1"}, "HTTP/1.1 after h2": {"h2"}} {
		text := evil + good + "Connection: close\r\nX-End: " + lastMark + end
		frontForm(t, "ALPN: "+name, func(c *tls.Conn) []byte {
			return h1Form(t, c, text)
		}, protos...)
	}
}

// The same for HTTP/2. Each list is the fields of one request; "|" begins another request on the connection.
func TestI7_NoHTTP2RequestFronts(t *testing.T) {
	t.Parallel()
	const get, www, evil = ":method GET,:scheme https,:path /evil,", ":authority www.example.com", ":authority evil.example.com"
	for name, fields := range map[string]string{
		"authority":               get + evil,
		allowed:                   strings.Replace(get, "/evil", lastMark, 1) + www,
		"second stream":           get + www + "|" + get + evil,
		"host against authority":  get + www + ",host evil.example.com",
		"authority against host":  get + evil + ",host www.example.com",
		"host alone":              get + "host evil.example.com",
		"no name":                 strings.TrimSuffix(get, ","),
		"two authorities":         get + www + "," + evil,
		"two authorities, turned": get + evil + "," + www,
		"authority after fields":  get + www + ",x y," + evil,
		"userinfo":                get + ":authority www.example.com@evil.example.com",
		"port":                    get + evil + ":443",
		"upper case":              get + ":authority EVIL.EXAMPLE.COM",
		"upper case field":        get + www + ",Host evil.example.com",
		"trailing dot":            get + evil + ".",
		"percent":                 get + ":authority %65vil.example.com",
		"full-width":              get + ":authority \uff45vil.example.com",
		"absolute path":           ":method GET,:scheme https,:path https://evil.example.com/evil," + www,
		"path with a name":        ":method GET,:scheme https,:path evil.example.com/evil," + www,
		"gRPC":                    ":method POST,:scheme https,:path /evil/Call," + evil + ",content-type application/grpc,te trailers",
		"CONNECT":                 ":method CONNECT," + evil + ":443",
		"extended CONNECT":        ":method CONNECT,:protocol websocket,:scheme https,:path /evil," + evil,
		"line break in a field":   get + www + ",x y\r\nHost: evil.example.com",
		"line break in the path":  ":method GET,:scheme https,:path /evil\r\nHost:evil.example.com," + www,
		"line break in a method":  ":method GET / HTTP/1.1\r\nHost:evil.example.com,:scheme https,:path /," + www,
	} {
		frontForm(t, name, func(c *tls.Conn) []byte { return h2Form(t, c, fields) }, "h2")
	}
}

const (
	lastMark = "/last/.." // as long as the data of an HTTP/2 ping
	// allowed is the form that is let through: it shows that the others are refused because of their form.
	allowed = "nothing denied"
)

// h1Form sends a text, and reads until the other side has closed.
func h1Form(t *testing.T, c net.Conn, text string) []byte {
	t.Helper()
	_, _ = io.WriteString(c, text) // a refusal may come before everything is written
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("nobody ended the connection")
	}
	return []byte(text)
}

// h2Form sends requests, each in a HEADERS frame and a CONTINUATION, waits for their ends and returns what it sent.
func h2Form(t *testing.T, c net.Conn, requests string) []byte {
	t.Helper()
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	w, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	_ = w.WriteSettings()
	open := map[uint32]bool{}
	for i, request := range strings.Split(requests, "|") {
		block.Reset()
		for _, field := range strings.Split(request, ",") {
			name, value, _ := strings.Cut(field, " ")
			_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		id := uint32(2*i + 1)
		half := block.Len() / 2
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes()[:half], EndStream: true})
		_ = w.WriteContinuation(id, true, block.Bytes()[half:])
		open[id] = true
	}
	_ = w.WritePing(false, [8]byte([]byte(lastMark)))
	_, _ = c.Write(out.Bytes())
	r := http2.NewFramer(nil, c)
	for len(open) > 0 {
		f, err := r.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("nobody ended the streams")
		}
		if err != nil {
			break // the connection was refused, or the server doesn't speak HTTP/2 (twin)
		}
		if _, reset := f.(*http2.RSTStreamFrame); reset || f.Header().Type <= http2.FrameHeaders && f.Header().Flags.Has(http2.FlagDataEndStream) {
			delete(open, f.Header().StreamID)
		}
	}
	return out.Bytes()
}

// frontForm runs send on a connection to www.example.com, and again where nobody looks into that.
func frontForm(t *testing.T, name string, send func(*tls.Conn) []byte, protos ...string) {
	t.Helper()
	for kind, tls := range map[string]string{"inspected": "", "uninspected (twin)": "[tls]\ninspect = \"none\"\n"} {
		t.Run(name+"/"+kind, func(t *testing.T) {
			t.Parallel()
			sent, got := rawFront(t, allowWWW+denyEvil+tls, send, protos)
			if tls != "" {
				if !bytes.Equal(got, sent) {
					t.Errorf("uninspected, the server got %q of %q: this test shows nothing", got, sent)
				}
				return
			}
			if name == allowed && !bytes.Contains(got, []byte(lastMark)) {
				t.Errorf("what is allowed did not reach the server, which got %q", got)
			}
			for head := range bytes.SplitSeq(bytes.ToLower(got), []byte("\r\n\r\n")) {
				if bytes.Contains(head, []byte("vil.")) || bytes.Contains(head, []byte("/evil")) && !bytes.Contains(append(head, "\r\n"...), []byte("\r\nhost: www.example.com\r\n")) {
					t.Errorf("the server was asked for the denied host: %q", head)
				}
			}
		})
	}
}

// rawFront returns what send sent to www.example.com, and all that its server got, which answers 200 to anything.
func rawFront(t *testing.T, policy string, send func(*tls.Conn) []byte, protos []string) (sent, got []byte) {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	conf := &tls.Config{Certificates: []tls.Certificate{w.CA.Certificate("www.example.com")}, MinVersion: tls.VersionTLS12}
	var mu sync.Mutex
	var all []byte
	var conns []net.Conn
	w.Serve(site+":443", func(raw net.Conn) {
		mu.Lock()
		conns = append(conns, raw)
		mu.Unlock()
		c := tls.Server(raw, conf)
		defer c.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			mu.Lock()
			all = append(all, buf[:n]...)
			last := bytes.Contains(all, []byte(lastMark))
			mu.Unlock()
			if bytes.Contains(buf[:n], []byte("\r\n\r\n")) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			if err != nil || last {
				return
			}
		}
	})
	t.Cleanup(func() { // the gateway keeps connections for later
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	w.Resolve("www.example.com", dns.TypeA)
	raw, err := w.Dial(siteAddr, 443)
	if err != nil {
		t.Fatal(err)
	}
	tr, _ := w.Client().Transport.(*http.Transport)
	c := tls.Client(raw, &tls.Config{ServerName: "www.example.com", RootCAs: tr.TLSClientConfig.RootCAs, NextProtos: protos, MinVersion: tls.VersionTLS12})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if agreed := c.ConnectionState().NegotiatedProtocol; slices.Equal(protos, []string{"h2"}) && strings.Contains(policy, "inspect") == (agreed == "h2") {
		t.Fatalf("the connection uses %q", agreed)
	}
	sent = send(c)
	mu.Lock()
	defer mu.Unlock()
	return sent, bytes.Clone(all)
}
