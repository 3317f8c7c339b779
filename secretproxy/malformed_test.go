package secretproxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestI1_MalformedRequestsAreAudited: what passes the strict check and then net/http's parser refuses is answered and
// audited as any other refusal, at the beginning of a connection and behind another request.
func TestI1_MalformedRequestsAreAudited(t *testing.T) {
	t.Parallel()
	good := "GET /fine HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n"
	for name, bad := range map[string]string{
		"a percent sign":            "GET /%zz?mark HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		"a cut percent escape":      "GET /mark% HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		"a trailer of the framing":  "POST /mark HTTP/1.1\r\nHost: " + apiHost + "\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
		"a trailer named Trailer":   "POST /mark HTTP/1.1\r\nHost: " + apiHost + "\r\nTransfer-Encoding: chunked\r\nTrailer: X, Trailer\r\n\r\n0\r\n\r\n",
		"CONNECT to half a bracket": "CONNECT [::1 HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
	} {
		for _, before := range []string{"", good, good + good} {
			w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
			conn := w.tlsConn(apiHost, apiAddr, "http/1.1")
			_, _ = io.WriteString(conn, before+bad)
			r := bufio.NewReader(conn)
			for range strings.Count(before, "GET") {
				resp, err := http.ReadResponse(r, nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s: a request before it: %v, %v", name, resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var body refusalBody
			err = json.NewDecoder(resp.Body).Decode(&body)
			if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("X-Msb-Reason") != "malformed" || err != nil || body.Error != "bad_request" || body.Reason != "malformed" || !resp.Close {
				t.Errorf("%s: status %d, %v, %+v, %v", name, resp.StatusCode, resp.Header, body, err)
			}
			if _, err := r.ReadByte(); err == nil {
				t.Errorf("%s: something follows the refusal", name)
			}
			events := w.events.of(audit.HTTPRequest)
			if want := 1 + strings.Count(before, "GET"); len(events) != want {
				t.Errorf("%s: %d events, want %d", name, len(events), want)
				continue
			}
			last := events[len(events)-1]
			if last.Status != http.StatusBadRequest || last.Action != "deny" || last.Reason != "unreadable" {
				t.Errorf("%s: the last event is %+v", name, last)
			}
			if strings.Contains(w.api.bytes(), "mark") || w.proxy.Stats().Refused != 1 {
				t.Errorf("%s: the server got %q, %+v", name, w.api.bytes(), w.proxy.Stats())
			}
		}
	}
}

// TestNetHTTPLikeAnswersPass: a server's 400 looks as net/http's to a head that it can't read, and such a head
// stands behind the request.
func TestNetHTTPLikeAnswersPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header()["Date"] = nil
		http.Error(rw, "400 Bad Request", http.StatusBadRequest)
	}, withSecret(secretIn(t, header("Authorization"))))
	for _, behind := range []string{"", "no head\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n"} {
		conn := w.tlsConn(apiHost, apiAddr, "http/1.1")
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n"+behind)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "400 Bad Request\n" || resp.Header.Get("X-Msb-Reason") != "" {
			t.Errorf("%q: %v %q, %v", behind, resp.Header, body, err)
		}
		if behind == "" {
			continue
		}
		if resp, err = http.ReadResponse(r, nil); err != nil || resp.Header.Get("X-Msb-Reason") == "" {
			t.Errorf("%q: then came %v, %v", behind, resp, err)
		}
	}
}
