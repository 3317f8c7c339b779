package image

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	dialTimeout   = 15 * time.Second
	tlsTimeout    = 15 * time.Second
	headerTimeout = 60 * time.Second
	// stallTimeout is how long a body may take for stallBytes: a transfer that
	// drips is as dead as one that stopped.
	stallTimeout = 60 * time.Second
	stallBytes   = 4 << 10
	// maxRedirects is net/http's own limit.
	maxRedirects = 10
)

// registryTransport makes the requests of one resolve.
type registryTransport struct {
	// registry is the host of the reference with its port, scheme its scheme.
	registry, scheme string
	policy           func(dialTarget) error
	next             http.RoundTripper
	stall            time.Duration
	// proxies are hosts that the environment names as proxies: the user's choice.
	proxies sync.Map
}

var _ http.RoundTripper = (*registryTransport)(nil)

func newRegistryTransport(registry, scheme string, opts *StoreOptions) *registryTransport {
	t := &registryTransport{registry: registry, scheme: scheme, policy: opts.dialPolicy, next: opts.transport, stall: opts.stallTimeout}
	if t.stall == 0 {
		t.stall = stallTimeout
	}
	if t.policy == nil {
		t.policy = newAddressPolicy().check
	}
	if t.next == nil {
		t.next = t.newHTTP()
	}
	return t
}

// newHTTP dials only what the policy lets through: the exact address, after
// resolution, so that a name can't mean one address when it is judged and another
// when it is used.
func (t *registryTransport) newHTTP() *http.Transport {
	return &http.Transport{
		Proxy: t.proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, exact string, _ syscall.RawConn) error {
				return t.judge(hostOf(address), exact)
			}}
			return d.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConnsPerHost:    parallelLayers,
		IdleConnTimeout:        30 * time.Second,
		// Layers are compressed; a second decompression hides their size.
		DisableCompression: true,
	}
}

func (t *registryTransport) proxy(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if u != nil {
		t.proxies.Store(u.Hostname(), true)
	}
	return u, err
}

// close drops idle connections, which would keep goroutines.
func (t *registryTransport) close() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *registryTransport) judge(host, exact string) error {
	if _, ok := t.proxies.Load(host); ok {
		return nil
	}
	addr, err := netip.ParseAddrPort(exact)
	if err != nil {
		return fmt.Errorf("%w: %q is no address", ErrAddress, exact)
	}
	return t.policy(dialTarget{registry: hostOf(t.registry), host: host, addr: addr})
}

// RoundTrip implements http.RoundTripper. Every redirect comes through here.
func (t *registryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && (t.scheme != "http" || req.URL.Host != t.registry) {
		return nil, fmt.Errorf("%w: the registry leads to %s://%s, which is not HTTPS", ErrAddress, req.URL.Scheme, req.URL.Host)
	}
	// The client sets its own redirect check, which takes net/http's limit away.
	if redirects(req) > maxRedirects {
		return nil, fmt.Errorf("%w: %s redirects more than %d times", ErrNotRegistry, req.URL.Host, maxRedirects)
	}
	// A proxy would connect for us: literal addresses are judged here as well.
	if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
		if err := t.policy(dialTarget{registry: hostOf(t.registry), host: req.URL.Hostname(), addr: netip.AddrPortFrom(addr, 0)}); err != nil {
			return nil, err
		}
	}
	if oldAddress(req.URL.Hostname()) {
		return nil, fmt.Errorf("%w: the registry leads to %s, which is an address in a form that no registry has", ErrAddress, req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if err := checkAnswer(resp); err != nil {
		_ = resp.Body.Close()
		cancel(nil)
		return nil, err
	}
	resp.Body = newStallBody(ctx, resp.Body, cancel, t.stall, bodyLimit(req.URL.Path))
	return resp, nil
}

// oldAddress reports whether host is what inet_aton(3) takes for an address and netip doesn't (2852039166, 127.1,
// 0xa9fe.43518, 10.0.0.1.): its last label begins with a digit, as no top-level domain's does.
func oldAddress(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && last[0] >= '0' && last[0] <= '9'
}

// redirects counts the answers that led to req.
func redirects(req *http.Request) int {
	n := 0
	for ; req != nil && req.Response != nil && n <= maxRedirects; req = req.Response.Request {
		n++
	}
	return n
}

// checkAnswer recognises captive portals, login pages and wrong addresses.
func checkAnswer(resp *http.Response) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && media == "text/html" && strings.HasPrefix(resp.Request.URL.Path, "/v2/") {
		return fmt.Errorf("%w: %s answers with a web page; check the registry's name, a proxy or a login page of this network",
			ErrNotRegistry, resp.Request.URL.Host)
	}
	return nil
}

// bodyLimit bounds what the client reads into memory; blobs are bounded by their readers.
func bodyLimit(path string) int64 {
	if strings.Contains(path, "/blobs/") || !strings.HasPrefix(path, "/v2/") {
		return 0
	}
	return maxManifestBytes
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// stallBody cancels its request when less than stallBytes arrive within the timeout.
type stallBody struct {
	body    io.ReadCloser
	ctx     context.Context // the request's own
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	timeout time.Duration
	fresh   int64
	left    int64
}

func newStallBody(ctx context.Context, body io.ReadCloser, cancel context.CancelCauseFunc, timeout time.Duration, limit int64) *stallBody {
	b := &stallBody{ctx: ctx, body: body, cancel: cancel, timeout: timeout, left: limit}
	if limit == 0 {
		b.left = -1
	}
	b.timer = time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("%w: less than %d bytes came in %s; try again", ErrStalled, stallBytes, timeout))
	})
	return b
}

// Read implements io.Reader.
func (b *stallBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if b.fresh += int64(n); b.fresh >= stallBytes {
		b.fresh = 0
		b.timer.Reset(b.timeout)
	}
	if b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			return 0, fmt.Errorf("%w: the registry's answer has more than %d bytes", ErrLimit, maxManifestBytes)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *stallBody) Close() error {
	b.timer.Stop()
	err := b.body.Close()
	b.cancel(nil)
	return err
}
