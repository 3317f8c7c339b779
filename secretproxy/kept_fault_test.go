package secretproxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestFaultsOnKeptConnectionsAreAnswered: net/http ends a kept connection without a word when its next
// read fails, and gives up the request before if it is under way still.
func TestFaultsOnKeptConnectionsAreAnswered(t *testing.T) {
	t.Parallel()
	const whole, faulty = "GET /a HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n", "GET /b HTTP/1.1\nHost: " + apiHost + "\n\n"
	for _, pieces := range [][]string{{whole + faulty}, {whole, faulty}, {whole, "G", faulty[1:]}, {whole, faulty[:20], faulty[20:]}} {
		w := newWorld(t, echo)
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		br := bufio.NewReader(c)
		for i, piece := range pieces {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				continue
			}
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%q: the request before the fault: %v", pieces, err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%q: the request before the fault: status %d, %v", pieces, resp.StatusCode, err)
			}
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("%q: the fault: no answer: %v", pieces, err)
			continue
		}
		var refused refusalBody
		if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil || resp.StatusCode != http.StatusBadRequest || refused.Reason != "bare_lf" {
			t.Errorf("%q: the fault: status %d, %+v, %v", pieces, resp.StatusCode, refused, err)
		}
		if _, err := br.ReadByte(); err == nil || strings.Contains(w.api.bytes(), "/b") {
			t.Errorf("%q: the connection goes on: %v; the server got %q", pieces, err, w.api.bytes())
		}
	}
}
