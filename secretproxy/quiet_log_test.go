package secretproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// lockedBuffer is a log that is read while it's written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestI8_LibrariesLogNoTraffic: a server answers HEAD with a body that holds the value, as unasked bytes, which
// net/http quotes to the process' standard logger. It takes that logger, so it isn't parallel. The second round
// takes the defence away and sees the value there.
func TestI8_LibrariesLogNoTraffic(t *testing.T) {
	logged := new(lockedBuffer)
	log.SetOutput(logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for _, defended := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))), func(_ *policies.Policy, c *Config) {
			c.Dial = func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", l.Addr().String())
			}
		})
		if !defended {
			log.SetOutput(logged)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := tls.Server(c, &tls.Config{Certificates: w.api.TLS.Certificates, MinVersion: tls.VersionTLS12})
			defer s.Close()
			r, err := http.ReadRequest(bufio.NewReader(s))
			if err != nil {
				return
			}
			body := "you sent " + r.Header.Get("Authorization")
			_, _ = fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			_ = s.SetReadDeadline(time.Now().Add(60 * time.Second))
			_, _ = io.Copy(io.Discard, s) // until the proxy has noticed, and closed
		}()
		do(t, w.client(apiHost, apiAddr, false), request(t, "HEAD", "https://"+apiHost+"/", nil, "Authorization", "Bearer "+w.placeholder()))
		<-ended
		_ = l.Close()
		if !defended {
			eventually(t, "net/http doesn't log what came unasked: this proves nothing", func() bool { return strings.Contains(logged.String(), realValue) })
			continue
		}
		log.Print("a line of the program's own")
		if got := logged.String(); strings.Contains(got, "Unsolicited") || strings.Contains(got, realValue) || !strings.Contains(got, "of the program's own") {
			t.Errorf("the log says %q", got)
		}
	}
}
