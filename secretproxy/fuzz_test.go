package secretproxy

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// FuzzRequest sends the fuzzer's bytes as the guest's plaintext, @ standing
// for the placeholder (no letter: one of HTTP's would spoil every request). The
// oracle: the real value reaches no server but the right one, in no place but the
// Authorization field, and never the guest.
func FuzzRequest(f *testing.F) {
	for _, raw := range rawRequests() {
		f.Add([]byte(raw), false)
	}
	ok := "Host: " + apiHost + "\r\nAuthorization: Bearer @\r\n"
	f.Add([]byte("GET / HTTP/1.1\r\n"+ok+"\r\n"), false)
	f.Add([]byte("POST /?q=@ HTTP/1.1\r\n"+ok+"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n"+ok+"\r\n"), false)
	f.Add([]byte("GET / HTTP/1.1\r\n"+ok+"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n@"), false)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: "+evilHost+"\r\nAuthorization: @\r\n\r\n"), true)
	f.Fuzz(func(t *testing.T, raw []byte, toEvil bool) {
		if len(raw) > 16<<10 {
			return
		}
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		name, dst := apiHost, apiAddr
		if toEvil {
			name, dst = evilHost, evilAddr
		}
		c := w.tlsConn(name, dst, "http/1.1")
		_, _ = c.Write(bytes.ReplaceAll(raw, []byte("@"), []byte(w.placeholder())))
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		got, err := io.ReadAll(c)
		if bytes.Contains(got, []byte(realValue)) {
			t.Errorf("the guest got the value: %q (%v)", got, err)
		}
		w.noLeak()
		for _, line := range strings.Split(w.api.bytes(), "\n") {
			if strings.Contains(line, realValue) && !strings.HasPrefix(line, "Authorization: ") {
				t.Errorf("the value went to another place: %q", line)
			}
		}
	})
}

// FuzzHead gives the strict check any bytes in any pieces: it must not depend
// on the pieces, and what it lets through must be what net/http reads too.
func FuzzHead(f *testing.F) {
	for _, raw := range rawRequests() {
		f.Add([]byte(raw), uint8(3))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, piece uint8) {
		var whole, cut headCheck
		_, wholeErr := whole.feed(raw)
		var cutErr error
		for rest := raw; len(rest) > 0 && cutErr == nil; {
			n := min(len(rest), int(piece)+1)
			_, cutErr = cut.feed(rest[:n])
			rest = rest[n:]
		}
		if (wholeErr == nil) != (cutErr == nil) || wholeErr != nil && wholeErr.Error() != cutErr.Error() {
			t.Errorf("whole: %v, in pieces: %v", wholeErr, cutErr)
		}
	})
}

func TestStrictCheckLetsOrdinaryRequestsThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: " + apiHost + "\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		"POST /a?b=c HTTP/1.1\r\nHost: " + apiHost + "\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.1\r\nhost:" + apiHost + "\r\ntransfer-encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + apiHost + "\r\nX-Empty:\r\nX-Tab: a\tb\r\nX-Latin: \xe4\r\n\r\n",
	} {
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		_, _ = io.WriteString(c, raw)
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, head); err != nil || string(head) != "HTTP/1.1 "+"200" && string(head) != "HTTP/1.0 200" {
			t.Errorf("%q: got %q, %v", raw, head, err)
		}
		_ = c.Close()
	}
}
