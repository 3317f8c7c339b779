package secretproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawTarget asks for a target over HTTP/2 as it stands there, and returns the answer's status and reason.
func (w *world) rawTarget(target string) (status, reason string) {
	w.t.Helper()
	c := w.tlsConn(apiHost, apiAddr, "h2")
	defer c.Close()
	_, _ = io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", apiHost}, {":path", target}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true})
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return "reset", ""
		case *http2.MetaHeadersFrame:
			for _, field := range f.RegularFields() {
				if field.Name == "x-msb-reason" {
					reason = field.Value
				}
			}
			return f.PseudoValue("status"), reason
		}
	}
}

// TestI9_TargetsEndAlikeOverHTTP2: HTTP/2 frames a target by its length, the server's HTTP/1 by a
// blank. What HTTP/1 guests are refused for, the others are too, and no value goes out.
func TestI9_TargetsEndAlikeOverHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, query("k"))))
	w.api.TLS.NextProtos = []string{"http/1.1"}
	for _, target := range []string{
		"/?k=" + w.placeholder() + " HTTP/1.0", "/?k=" + w.placeholder() + "#x", "/?k=" + w.placeholder() + "\tx", "/a b?k=" + w.placeholder(),
		"/a#b?k=" + w.placeholder(), "/?k=" + w.placeholder() + " ", "/?k=" + w.placeholder() + "\x7f",
	} {
		status, reason := w.rawTarget(target)
		if (status != "400" || reason != "request_target") && status != "reset" {
			t.Errorf("%q: %s %s", target, status, reason)
		}
	}
	if got := w.api.bytes(); got != "" {
		t.Errorf("the server got %q", got)
	}
	if status, reason := w.rawTarget("/a%20b?k=" + w.placeholder() + "&x=%20HTTP/1.0%23"); status != "200" || !strings.Contains(w.api.bytes(), "ghp_R3al") {
		t.Errorf("escaped: %s %s; the server got %q", status, reason, w.api.bytes())
	}
}

// TestHTTP1TargetsWithBlanks is what the other version is held to.
func TestHTTP1TargetsWithBlanks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	c := w.tlsConn(apiHost, apiAddr, "http/1.1")
	_, _ = io.WriteString(c, "GET /?a#b HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if !strings.Contains(string(answer), http.StatusText(http.StatusBadRequest)) || !strings.Contains(string(answer), "X-Msb-Reason: request_target") {
		t.Errorf("%q", answer)
	}
}
