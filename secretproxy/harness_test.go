package secretproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	realValue = "ghp_R3alT0k3nV4lueF0rTests/+9"
	apiHost   = "api.example.com"
	evilHost  = "evil.example.net"
)

// world is a proxy with two TLS servers behind it: the right one and another.
type world struct {
	t      *testing.T
	proxy  *Proxy
	events *recorder
	api    *recordingServer
	evil   *recordingServer
	plain  *recordingServer // nil unless a test needs it
	judge  *fakeJudge
	root   *x509.CertPool // what the guest trusts
	public *testCA        // what the proxy trusts

	mu         sync.Mutex
	terminated []string
}

// recordingServer notes every byte that reaches it.
type recordingServer struct {
	*httptest.Server
	name hostname.Name
	mu   sync.Mutex
	seen strings.Builder
}

func (s *recordingServer) bytes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// record notes a request as the server's parser saw it.
func (s *recordingServer) record(r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.WriteString(r.Method + " " + r.Host + " " + r.RequestURI + "\n")
	for k, vs := range r.Header {
		s.seen.WriteString(k + ": " + strings.Join(vs, "|") + "\n")
	}
	s.seen.Write(body)
	s.seen.WriteString("\n")
}

type recorder struct {
	mu     sync.Mutex
	events []audit.Event
}

// Emit implements audit.Sink.
func (r *recorder) Emit(e audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) of(kind audit.Kind) []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []audit.Event
	for _, e := range r.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// fakeJudge allows everything but the paths under /forbidden and DELETE.
type fakeJudge struct{}

func (fakeJudge) Decide(f *egress.Flow) egress.Verdict {
	v := egress.Verdict{Action: egress.Allow, Rule: "test rule", Reason: egress.ReasonRule, Name: f.Name}
	switch {
	case strings.HasPrefix(f.Path, "/forbidden"):
		v.Action, v.Reason = egress.Deny, egress.ReasonPath
	case f.Method == http.MethodDelete:
		v.Action, v.Reason = egress.Deny, egress.ReasonMethod
	}
	return v
}

// option changes the policy of a world before its proxy starts.
type option func(*policies.Policy, *Config)

// secretIn is the usual secret: GITHUB_TOKEN for apiHost in those places.
func secretIn(t *testing.T, places ...policies.Place) policies.Secret {
	t.Helper()
	return secretOf(t, "GITHUB_TOKEN", realValue, places...)
}

func secretOf(t *testing.T, name, value string, places ...policies.Place) policies.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return policies.Secret{
		Name: name, From: policies.Source{Kind: policies.FromFile, Value: path},
		Hosts: []policies.SecretHost{{Pattern: hostname.MustParsePattern(apiHost)}}, In: places, Placeholder: "ghp_{36}",
	}
}

func header(name string) policies.Place {
	return policies.Place{Kind: policies.InHeader, Name: name}
}

func query(name string) policies.Place {
	return policies.Place{Kind: policies.InQuery, Name: name}
}

func withSecret(s policies.Secret) option {
	return func(p *policies.Policy, _ *Config) { p.Secrets = append(p.Secrets, s) }
}

// newWorld starts both servers with that handler and a proxy in front.
func newWorld(t *testing.T, handler http.HandlerFunc, options ...option) *world {
	t.Helper()
	w := &world{t: t, events: &recorder{}, judge: &fakeJudge{}, root: x509.NewCertPool()}
	upstreamCA := newTestCA(t)
	w.public = upstreamCA
	w.api = newRecordingServer(t, apiHost, upstreamCA, handler)
	w.evil = newRecordingServer(t, evilHost, upstreamCA, handler)
	policy := policies.Default()
	cfg := Config{
		Sandbox: "test", Judge: w.judge, Audit: w.events, Roots: upstreamCA.pool(),
		Dial:      w.dial,
		Terminate: func(reason string) { w.mu.Lock(); w.terminated = append(w.terminated, reason); w.mu.Unlock() },
	}
	for _, o := range options {
		o(policy, &cfg)
	}
	cfg.Policy = policy
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = p
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if !w.root.AppendCertsFromPEM(p.cfg.CA.CertPEM()) {
		t.Fatal("the proxy's CA is not PEM")
	}
	return w
}

// Addresses that the fake resolver pinned.
var (
	apiAddr  = netip.MustParseAddrPort("93.184.215.14:443")
	evilAddr = netip.MustParseAddrPort("93.184.215.15:443")
	// plainAddr is apiHost without TLS, where a test started one.
	plainAddr = netip.MustParseAddrPort("93.184.215.14:80")
	// otherAddr is another port of apiHost, with the same server behind it.
	otherAddr = netip.MustParseAddrPort("93.184.215.14:8443")
)

// dial leads the pinned addresses to the servers, and nothing anywhere else.
func (w *world) dial(ctx context.Context, _ hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	target := map[netip.AddrPort]*recordingServer{apiAddr: w.api, otherAddr: w.api, evilAddr: w.evil, plainAddr: w.plain}[dst]
	if target == nil {
		return nil, &net.OpError{Op: "dial", Err: os.ErrPermission}
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", target.Listener.Addr().String())
}

// flow is what egress would hand over for that name.
func flow(name string, dst netip.AddrPort) egress.Flow {
	f := egress.Flow{Proto: egress.TCP, Src: netip.MustParseAddrPort("192.168.127.2:40000"), Dst: dst, Stage: egress.StageName, App: egress.AppTLS}
	if name != "" {
		f.Pinned = []hostname.Name{hostname.MustParse(name)}
		f.Name = f.Pinned[0]
	}
	return f
}

// pipe returns the guest's end of a connection that the proxy serves.
func (w *world) pipe(f egress.Flow, plain bool) net.Conn {
	w.t.Helper()
	guest, gateway := tcpPair(w.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if plain {
			w.proxy.ServeHTTP(context.Background(), gateway, f)
			return
		}
		w.proxy.ServeTLS(context.Background(), gateway, f)
	}()
	w.t.Cleanup(func() { _ = guest.Close(); <-done })
	return guest
}

// tcpPair is a connection over loopback: net.Pipe has no buffers, which no
// network lacks.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// client returns a guest's HTTP client whose connections all go to that name.
func (w *world) client(name string, dst netip.AddrPort, http2 bool) *http.Client {
	w.t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	tr := &http.Transport{
		Protocols:          &protocols,
		DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return w.pipe(flow(name, dst), false), nil
		},
		TLSClientConfig: &tls.Config{RootCAs: w.root, ServerName: name},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport: tr, Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tlsConn is a guest's raw TLS connection to that name.
func (w *world) tlsConn(name string, dst netip.AddrPort, alpn ...string) *tls.Conn {
	w.t.Helper()
	c := tls.Client(w.pipe(flow(name, dst), false), &tls.Config{RootCAs: w.root, ServerName: name, NextProtos: alpn})
	if err := c.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

func (w *world) placeholder() string { return w.proxy.Placeholders()["GITHUB_TOKEN"] }

// noLeak fails if the value is anywhere but at the right server.
func (w *world) noLeak() {
	w.t.Helper()
	if strings.Contains(w.evil.bytes(), realValue) {
		w.t.Errorf("the wrong server got the value: %q", w.evil.bytes())
	}
}

func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func request(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}
