package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy/ca"
)

// An upstream is verified against the roots that SSL_CERT_FILE names in msb's environment. The roots of a
// process are read once, so each case has a process of its own.
func TestI9_SSLCertFileVerifiesUpstreams(t *testing.T) {
	t.Parallel()
	const name = "private.internal"
	private, other := authority(t), authority(t)
	leaf, err := private.ForName(hostname.MustParse(name))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	policy := write(t, "p.toml", fmt.Sprintf("version = 1\n[tls]\ninspect = \"all\"\n[hosts]\n%q = %q\n", name, server.Listener.Addr()))
	roots := func(a *ca.Authority) string { return "SSL_CERT_FILE=" + write(t, "roots.pem", string(a.CertPEM())) }
	for _, c := range []struct {
		what   string
		env    []string
		status int
		body   string
	}{
		{"unset", nil, http.StatusBadGateway, "certificate_unknown_authority"},
		{"another authority", []string{roots(other)}, http.StatusBadGateway, "certificate_unknown_authority"},
		{"the server's authority", []string{roots(private)}, http.StatusOK, "served"},
	} {
		dir := t.TempDir()
		_, ready := startGatewayIn(t, c.env, "--policy", policy, "--listen", "unix://"+filepath.Join(dir, "n.sock"), "--ca-out", filepath.Join(dir, "ca.pem"))
		status, body := get(t, plug(t, ready), ready, name, 443)
		if status != c.status || !strings.Contains(body, c.body) {
			t.Errorf("SSL_CERT_FILE names %s: status %d, %s; want %d and %q", c.what, status, body, c.status, c.body)
		}
	}
}

func authority(t *testing.T) *ca.Authority {
	t.Helper()
	a, err := ca.New("private")
	if err != nil {
		t.Fatal(err)
	}
	return a
}
