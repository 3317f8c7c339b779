package secretproxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy/ca"
)

// testCA is the public authority of the tests' internet.
type testCA struct{ authority *ca.Authority }

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	a, err := ca.New("upstream")
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{a}
}

func (c *testCA) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.authority.Certificate())
	return pool
}

// newRecordingServer starts a TLS server with HTTP/1 and HTTP/2 that notes what
// it gets; without an authority, one that speaks plain HTTP.
func newRecordingServer(t *testing.T, name string, authority *testCA, handler http.HandlerFunc) *recordingServer {
	t.Helper()
	s := &recordingServer{name: hostname.MustParse(name)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		r.Body = &teeBody{r.Body, &body}
		s.record(r, nil)
		handler(w, r)
		s.record(r, body.Bytes())
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if authority == nil {
		s.Start()
	} else {
		cert, err := authority.authority.ForName(s.name)
		if err != nil {
			t.Fatal(err)
		}
		s.EnableHTTP2 = true
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}
		s.StartTLS()
	}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

type teeBody struct {
	io.ReadCloser
	copied *bytes.Buffer
}

// Read implements io.Reader.
func (b *teeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.copied.Write(p[:n])
	return n, err
}

// echo answers with the request's header fields and body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Echo-Authorization", r.Header.Get("Authorization"))
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(r.Method + " " + r.Host + r.RequestURI + "\n"))
	for k, vs := range r.Header {
		for _, v := range vs {
			_, _ = w.Write([]byte(k + ": " + v + "\n"))
		}
	}
	_, _ = w.Write(body)
}

// addressCertificate is for loopback, from the tests' own authority.
func addressCertificate(t *testing.T, c *testCA) tls.Certificate {
	t.Helper()
	cert, err := c.authority.ForAddr(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return *cert
}
