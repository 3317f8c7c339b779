package secretproxy

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestI1_OptionsAsteriskIsJudged: net/http's server answers "OPTIONS *" by itself, whatever the host.
func TestI1_OptionsAsteriskIsJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	w.api.Config.DisableGeneralOptionsHandler = true // it would not note it
	for _, host := range []string{apiHost, evilHost} {
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		_, _ = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if (resp.StatusCode == http.StatusOK) != (host == apiHost) {
			t.Errorf("%s: status %d", host, resp.StatusCode)
		}
	}
	if got := w.api.bytes(); strings.Count(got, "OPTIONS "+apiHost+" *") != 2 { // before and behind its body
		t.Errorf("the server got %q", got)
	}
	if n := len(w.events.of(audit.HTTPRequest)); n != 2 {
		t.Errorf("%d events for two requests", n)
	}
}
