package secretproxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestI9_UnannouncedDecidingTrailersAreRefused: behind one trailer that the head announced, net/http
// passes others on that it didn't.
func TestI9_UnannouncedDecidingTrailersAreRefused(t *testing.T) {
	t.Parallel()
	for _, withSecrets := range []bool{false, true} {
		for _, name := range []string{"Authorization", "Host", "X-Http-Method-Override", "X-Original-Url", "X_http_method_override", "Content_length", "X_range"} {
			arrived := make(chan http.Header, 1)
			var options []option
			if withSecrets {
				options = append(options, withSecret(secretIn(t, header("Authorization"))))
			}
			w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				arrived <- r.Trailer
			}, options...)
			w.api.TLS.NextProtos = []string{"http/1.1"} // where trailers are sent as they are
			c := w.tlsConn(apiHost, apiAddr, "http/1.1")
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+apiHost+"\r\nTrailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"3\r\nabc\r\n0\r\nX-A: 1\r\n"+name+": x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			var refused refusalBody
			err = json.NewDecoder(resp.Body).Decode(&refused)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusBadRequest || refused.Reason != "trailer" {
				t.Errorf("%s: status %d %+v", name, resp.StatusCode, refused)
			}
			w.api.CloseClientConnections()
			w.api.Close() // waits for the handler, if the request came that far
			select {
			case got := <-arrived:
				if got.Get(name) != "" {
					t.Errorf("%s: the server got %q", name, got)
				}
			default:
			}
		}
	}
}

// TestI9_DecidingFieldsAreNoTrailers: those that RFC 9110, section 6.5.1, keeps out, and those that a head is judged by.
func TestI9_DecidingFieldsAreNoTrailers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Host", "Authorization", "Proxy-Authorization", "Cookie", "Content-Length", "Transfer-Encoding", "Content-Encoding", "Content-Type",
		"Content-Range", "Range", "If-Range", "X-Ms-Range", "Expect", "Te", "Trailer", "Upgrade", "Connection", "Forwarded", "X-Forwarded-Host",
		"X-Forwarded-Server", "X-Host", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
	} {
		for _, spelt := range []string{name, strings.ReplaceAll(name, "-", "_"), strings.ToLower(name)} {
			if checkTrailers(&http.Request{Trailer: http.Header{spelt: nil}}) == nil {
				t.Errorf("%s passes as a trailer", spelt)
			}
		}
	}
	if fault := checkTrailers(&http.Request{Trailer: http.Header{"Grpc-Status": nil, "X-Checksum": nil}}); fault != nil {
		t.Errorf("trailers that decide nothing: %+v", fault)
	}
}

func TestPlaceholdersInTrailerNamesAreRefused(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, echo)
	c := w.tlsConn(apiHost, apiAddr, "http/1.1")
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+apiHost+"\r\nTrailer: "+w.placeholder()+"\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || w.api.bytes() != "" {
		t.Errorf("status %d; the server got %q", resp.StatusCode, w.api.bytes())
	}
}
