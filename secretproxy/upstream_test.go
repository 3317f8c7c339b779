package secretproxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// selfSigned returns a certificate for a name that no one vouches for.
func selfSigned(t *testing.T, name string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour * 48), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// expectCause asks for / with the secret and wants a 502 of that cause.
func expectCause(t *testing.T, w *world, cause string) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
		var refused refusalBody
		if err := json.Unmarshal([]byte(body), &refused); err != nil || resp.StatusCode != http.StatusBadGateway || refused.Cause != cause {
			t.Errorf("status %d, want 502 for %s: %s", resp.StatusCode, cause, body)
		}
		if strings.Contains(body, realValue) {
			t.Errorf("the value is in %s", body)
		}
	}
}

func TestI9_BadCertificatesGetNothing(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	cases := map[string]func(*world) tls.Certificate{
		"certificate_unknown_authority": func(*world) tls.Certificate { return selfSigned(t, apiHost, soon) },
		"certificate_name": func(w *world) tls.Certificate {
			return w.evil.TLS.Certificates[0]
		},
	}
	for cause, certificate := range cases {
		w := wantsSecret(t, echo)
		w.api.TLS.Certificates[0] = certificate(w)
		expectCause(t, w, cause)
		if got := w.api.bytes(); got != "" {
			t.Errorf("%s: the server got %q", cause, got)
		}
	}
}

func TestI9_ExpiredCertificateIsNamed(t *testing.T) {
	t.Parallel()
	expired := selfSigned(t, apiHost, time.Now().Add(-time.Hour))
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))), func(_ *policies.Policy, c *Config) {
		pool := x509.NewCertPool()
		cert, err := x509.ParseCertificate(expired.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		pool.AddCert(cert)
		c.Roots = pool
	})
	w.api.TLS.Certificates[0] = expired
	expectCause(t, w, "certificate_expired")
}

func TestI9_GuestCAIsNotTrustedUpstream(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, echo)
	leaf, err := w.proxy.cfg.CA.ForName(hostname.MustParse(apiHost))
	if err != nil {
		t.Fatal(err)
	}
	w.api.TLS.Certificates[0] = *leaf
	expectCause(t, w, "certificate_unknown_authority")
}

func TestDemandsForClientCertificatesAreNamed(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w := wantsSecret(t, echo)
		w.api.TLS.ClientAuth, w.api.TLS.MaxVersion = tls.RequireAnyClientCert, version
		w.api.TLS.NextProtos = []string{"http/1.1"} // net/http's HTTP/2 keeps the alert to itself
		expectCause(t, w, "tls")
		if got := w.api.bytes(); got != "" {
			t.Errorf("%s: the server got %q", tls.VersionName(version), got)
		}
	}
}

func TestUpstreamFailuresAreNamed(t *testing.T) {
	t.Parallel()
	closing := func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
		a, b := tcpPair(t)
		return a, b.Close()
	}
	plain := func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
		a, b := tcpPair(t)
		_, _ = b.Write([]byte("HTTP/1.1 400 this is not TLS\r\n\r\n"))
		t.Cleanup(func() { _ = b.Close() })
		return a, nil
	}
	failing := func(err error) DialFunc {
		return func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: err}
		}
	}
	for cause, dial := range map[string]DialFunc{
		"refused": failing(syscall.ECONNREFUSED), "unreachable": failing(syscall.EHOSTUNREACH),
		"timeout": failing(os.ErrDeadlineExceeded), "failed": failing(os.ErrPermission),
		"closed": closing, "tls": plain,
	} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))), func(_ *policies.Policy, c *Config) { c.Dial = dial })
		expectCause(t, w, cause)
		// The rest of a body may not have been read.
		resp, _ := do(t, w.client(apiHost, apiAddr, false), request(t, "POST", "https://"+apiHost+"/", strings.NewReader("body")))
		if resp.StatusCode != http.StatusBadGateway || !resp.Close {
			t.Errorf("%s behind a body: status %d, and the connection ends: %v", cause, resp.StatusCode, resp.Close)
		}
	}
}

func TestExtraCAsBindTheirHosts(t *testing.T) {
	t.Parallel()
	own, other := selfSigned(t, apiHost, time.Now().Add(time.Hour)), selfSigned(t, evilHost, time.Now().Add(time.Hour))
	file := filepath.Join(t.TempDir(), "extra.pem")
	bundle := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate[0]})...)
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, echo, func(p *policies.Policy, _ *Config) {
		p.TLS.ExtraCA = []policies.ExtraCA{{File: file, Hosts: []hostname.Pattern{hostname.MustParsePattern(apiHost)}}}
	})
	w.api.TLS.Certificates[0], w.evil.TLS.Certificates[0] = own, other
	for name, c := range map[string]struct {
		dst  netip.AddrPort
		want int
	}{apiHost: {apiAddr, http.StatusOK}, evilHost: {evilAddr, http.StatusBadGateway}} {
		resp, body := do(t, w.client(name, c.dst, true), request(t, "GET", "https://"+name+"/", nil))
		if resp.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d: %s", name, resp.StatusCode, c.want, body)
		}
	}
}

func TestExtraRootsReplaceDefaultsPerName(t *testing.T) {
	t.Parallel()
	own := selfSigned(t, apiHost, time.Now().Add(time.Hour))
	w := newWorld(t, echo, func(_ *policies.Policy, c *Config) {
		c.ExtraRoots = func(n hostname.Name) *x509.CertPool {
			if n != hostname.MustParse(apiHost) {
				return nil
			}
			pool := x509.NewCertPool()
			cert, err := x509.ParseCertificate(own.Certificate[0])
			if err != nil {
				t.Error(err)
			}
			pool.AddCert(cert)
			return pool
		}
	})
	w.api.TLS.Certificates[0] = own
	for name, dst := range map[string]netip.AddrPort{apiHost: apiAddr, evilHost: evilAddr} {
		if resp, body := do(t, w.client(name, dst, false), request(t, "GET", "https://"+name+"/", nil)); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d: %s", name, resp.StatusCode, body)
		}
	}
}

func TestI7_NoConnectionIsSharedBetweenNames(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	w := newWorld(t, echo, func(_ *policies.Policy, c *Config) {
		inner := c.Dial
		c.Dial = func(ctx context.Context, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
			dials.Add(1)
			return inner(ctx, name, dst)
		}
	})
	// Both names at one address, with a certificate for both: what browsers
	// coalesce.
	both := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == evilHost {
			return &w.evil.TLS.Certificates[0], nil
		}
		return &w.api.TLS.Certificates[0], nil
	}}
	w.api.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		both.NextProtos = []string{"h2"}
		return both, nil
	}
	for range 3 {
		for _, name := range []string{apiHost, evilHost} {
			if resp, body := do(t, w.client(name, apiAddr, true), request(t, "GET", "https://"+name+"/", nil)); resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d: %s", resp.StatusCode, body)
			}
		}
	}
	if n := dials.Load(); n != 2 {
		t.Errorf("%d connections, want one for each name", n)
	}
}

func TestEnvironmentProxiesAreIgnored(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	var connected atomic.Bool
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			connected.Store(true)
			_ = c.Close()
		}
	}()
	w := newWorld(t, echo)
	if resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil)); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
	_ = l.Close()
	<-accepted
	if connected.Load() {
		t.Error("the environment's proxy was connected to")
	}
}

func TestPOSTIsNotSentTwice(t *testing.T) {
	t.Parallel()
	var posts atomic.Int32
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			posts.Add(1)
			panic(http.ErrAbortHandler)
		}
	})
	c := w.client(apiHost, apiAddr, false)
	do(t, c, request(t, "GET", "https://"+apiHost+"/", nil))
	resp, _ := do(t, c, request(t, "POST", "https://"+apiHost+"/", strings.NewReader("x")))
	if resp.StatusCode != http.StatusBadGateway || posts.Load() != 1 {
		t.Errorf("status %d after %d posts", resp.StatusCode, posts.Load())
	}
}

func TestTruncatedAnswersStayTruncated(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(strings.Repeat("x", 100_000)))
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		})
		resp, err := w.client(apiHost, apiAddr, http2).Do(request(t, "GET", "https://"+apiHost+"/", nil))
		if err != nil {
			continue
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("http2 %v: the guest took a broken answer for a complete one", http2)
		}
		_ = resp.Body.Close()
	}
}

func TestReloadsKeepPlaceholders(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	w := newWorld(t, echo, withSecret(s))
	before := w.placeholder()
	c := w.client(apiHost, apiAddr, true)
	next := policies.Default()
	s.In = []policies.Place{header("X-Api-Key")}
	next.Secrets = []policies.Secret{s}
	if err := w.proxy.Reload(next, w.judge); err != nil {
		t.Fatal(err)
	}
	if w.placeholder() != before {
		t.Error("the placeholder changed")
	}
	for name, want := range map[string]int{"X-Api-Key": http.StatusOK, "Authorization": http.StatusForbidden} {
		if resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, name, before)); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d: %s", name, resp.StatusCode, want, body)
		}
	}
	broken := policies.Default()
	s.From.Value += "-gone"
	broken.Secrets = []policies.Secret{s}
	if err := w.proxy.Reload(broken, w.judge); err == nil {
		t.Error("a policy whose source is gone was taken")
	}
	if resp, _ := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "X-Api-Key", before)); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d after a refused reload", resp.StatusCode)
	}
}

// TestI10_ReplacedValuesStayMasked: a reload reads the sources again, so that it is a rotation
// too.
func TestI10_ReplacedValuesStayMasked(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, realValue) }, withSecret(s))
	for i := range 3 {
		if err := os.WriteFile(s.From.Value, []byte("another-value-"+strings.Repeat("x", i)), 0o600); err != nil {
			t.Fatal(err)
		}
		next := policies.Default()
		next.Secrets = []policies.Secret{s}
		if err := w.proxy.Reload(next, w.judge); err != nil {
			t.Fatal(err)
		}
		_, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil))
		if body != w.placeholder() {
			t.Errorf("after %d reloads the guest got %q", i+1, body)
		}
	}
}

func TestRotationDuringARequest(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	rotated := "another-Value-" + realValue[:10] + "-rotated"
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		_ = os.WriteFile(s.From.Value, []byte(rotated), 0o600)
		_, _ = io.WriteString(rw, got)
	}, withSecret(s))
	c := w.client(apiHost, apiAddr, false)
	deadline := time.Now().Add(60 * time.Second)
	for {
		_, body := do(t, c, request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
		if body != w.placeholder() {
			t.Fatalf("the guest got %q", body)
		}
		if strings.Contains(w.api.bytes(), rotated) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the rotated value was never sent")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestI8_ValuesAppearNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		echo(rw, r)
	}, withSecret(secretIn(t, header("Authorization"), query("t"))))
	c := w.client(apiHost, apiAddr, true)
	var answers strings.Builder
	for _, path := range []string{"/", "/?t=" + w.placeholder(), "/forbidden", "/abort", "/" + w.placeholder(), "/?x=" + w.placeholder()} {
		resp, body := do(t, c, request(t, "GET", "https://"+apiHost+path, nil, "Authorization", w.placeholder()))
		_ = resp.Header.Write(&answers)
		answers.WriteString(body)
	}
	events, err := json.Marshal(w.events.events)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"audit": string(events), "answers": answers.String()} {
		for _, form := range []string{realValue, strings.ReplaceAll(realValue, "/", `\/`), percentAll(realValue)} {
			if strings.Contains(text, form) {
				t.Errorf("the value is in the %s: %s", name, text)
			}
		}
	}
	if !strings.Contains(w.api.bytes(), realValue) {
		t.Error("the value never reached its server, so this test shows nothing")
	}
	for _, e := range w.events.of(audit.HTTPRequest) {
		if strings.ContainsAny(e.Path, "?") {
			t.Errorf("a query is in the audit: %q", e.Path)
		}
	}
}

func TestI1_OneEventForEachRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	c := w.client(apiHost, apiAddr, true)
	paths := []string{"/a", "/forbidden", "/b?x=1", "/" + w.placeholder(), "/c"}
	for _, path := range paths {
		do(t, c, request(t, "GET", "https://"+apiHost+path, nil, "Authorization", w.placeholder()))
	}
	events := w.events.of(audit.HTTPRequest)
	if len(events) != len(paths) {
		t.Fatalf("%d events for %d requests", len(events), len(paths))
	}
	for i, want := range []struct{ action, reason string }{{"allow", "rule"}, {"deny", "path_not_allowed"}, {"allow", "rule"}, {"deny", "secret_place"}, {"allow", "rule"}} {
		e := events[i]
		if e.Action != want.action || e.Reason != want.reason || e.Host != apiHost || e.SNI != apiHost || e.Rule != "test rule" || e.Method != http.MethodGet || e.Message == "" {
			t.Errorf("event %d: %+v, want %v", i, e, want)
		}
	}
	if got := w.proxy.Stats(); got.Requests != 5 || got.Denied != 2 || got.Violations != 1 || got.Swaps != 3 {
		t.Errorf("stats %+v", got)
	}
}
