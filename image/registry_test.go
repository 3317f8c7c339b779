package image

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// The registry of go-containerregistry, filled by its own client.
func TestResolveFromTheReferenceRegistry(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
			srv := httptest.NewServer(handler)
			opts := StoreOptions{}
			if scheme == "https" {
				srv.Close()
				srv = httptest.NewTLSServer(handler)
			}
			defer srv.Close()
			host := strings.TrimPrefix(strings.TrimPrefix(srv.URL, "http://"), "https://")
			if scheme == "https" {
				// The client takes loopback addresses for plain HTTP: give it a name.
				host = "registry.test:443"
				opts.transport = tlsTo(t, srv)
			}
			tag, err := name.NewTag(host + "/team/app:v1")
			if err != nil {
				t.Fatal(err)
			}
			img, err := random.Image(1000, 3)
			if err != nil {
				t.Fatal(err)
			}
			img, err = mutate.ConfigFile(img, configFor(t, img))
			if err != nil {
				t.Fatal(err)
			}
			var transport http.RoundTripper = http.DefaultTransport.(*http.Transport).Clone()
			if opts.transport != nil {
				transport = opts.transport
			}
			if err := remote.Write(tag, img, remote.WithTransport(transport)); err != nil {
				t.Fatal(err)
			}
			transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
			got := mustResolve(t, openStore(t, opts), tag.Name(), Options{Pull: PullAlways})
			want, err := img.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest != want.String() {
				t.Errorf("digest %s, want %s", got.Digest, want)
			}
			fsck(t, got.DiskPath)
		})
	}
}

func configFor(t *testing.T, img v1.Image) *v1.ConfigFile {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", DefaultPlatform().Architecture
	return c
}

// tlsTo sends every connection to srv, whose certificate is for example.com.
func tlsTo(t *testing.T, srv *httptest.Server) *http.Transport {
	t.Helper()
	tr := srv.Client().Transport.(*http.Transport).Clone()
	address := srv.Listener.Addr().String()
	tr.DialContext = dialerTo(address)
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com", MinVersion: tls.VersionTLS12}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestPullPolicies(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "one")}}, "app:v1")
	s := openStore(t, StoreOptions{})
	content := func(pull Pull) string {
		t.Helper()
		return debugfs(t, mustResolve(t, s, ref, Options{Pull: pull}).DiskPath, "cat n")
	}
	if _, err := s.Resolve(t.Context(), ref, Options{Pull: PullNever}); !errors.Is(err, ErrNotCached) {
		t.Errorf("never, without a cache: %v, want ErrNotCached", err)
	}
	if reg.gets.Load() != 0 {
		t.Error("never asked the registry")
	}
	if got := content(PullMissing); got != "one" {
		t.Errorf("missing: %q", got)
	}
	reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "two")}}, "app:v1")
	before := reg.gets.Load()
	if got := content(PullMissing); got != "one" || reg.gets.Load() != before {
		t.Errorf("missing, from the cache: %q, %d requests", got, reg.gets.Load()-before)
	}
	if got := content(PullAlways); got != "two" {
		t.Errorf("always, tag moved: %q", got)
	}
	layers := reg.layerGets.Load()
	if got := content(PullAlways); got != "two" || reg.layerGets.Load() != layers {
		t.Errorf("always, unchanged: %q, layers were fetched again", got)
	}
	reg.Close()
	if got := content(PullNever); got != "two" {
		t.Errorf("never, offline: %q", got)
	}
	if got := content(PullMissing); got != "two" {
		t.Errorf("missing, offline: %q", got)
	}
	if _, err := s.Resolve(t.Context(), ref, Options{Pull: PullAlways}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("always, offline: %v, want ErrUnreachable", err)
	}
	if err := s.Remove(ref); err != nil {
		t.Errorf("remove by the short name: %v", err)
	}
}

func TestI12_MisbehavingRegistriesAreNamed(t *testing.T) {
	t.Parallel()
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	v2 := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				return
			}
			h(w, r)
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return v2(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) })
	}
	for name, tc := range map[string]struct {
		h    http.HandlerFunc
		is   error
		says string
	}{
		"a web page":               {answer(200, "text/html; charset=utf-8", "<html>login</html>"), ErrNotRegistry, "web page"},
		"a web page as a manifest": {v2(answer(200, "text/html", "<html>")), ErrNotRegistry, "web page"},
		"a web page as JSON":       {v2(answer(200, "application/json", "<html>")), ErrConfig, "not JSON"},
		"no such image":            {v2(answer(404, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`)), ErrNotFound, "tag"},
		"not allowed":              {v2(answer(403, "application/json", `{"errors":[{"code":"DENIED"}]}`)), ErrUnauthorized, "log in"},
		"schema 1":                 {v2(answer(200, "application/json", `{"schemaVersion":1}`)), ErrConfig, "schema 1"},
		"an endless manifest":      {v2(answer(200, "application/json", strings.Repeat(" ", maxManifestBytes+1))), ErrLimit, "more than"},
		"redirect to metadata":     {redirect("https://169.254.169.254/latest/meta-data/"), ErrAddress, "169.254.169.254"},
		"redirect to a lie in v6":  {redirect("https://[::ffff:169.254.169.254]/"), ErrAddress, "169.254.169.254"},
		"redirect to plain HTTP":   {redirect("http://elsewhere.test/blob"), ErrAddress, "not HTTPS"},
		"redirect in a circle":     {redirect("/v2/app/manifests/v1"), ErrNotRegistry, "redirects"},
		"no answer":                {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newTestRegistry(t)
			reg.any.Store(&tc.h)
			s := openStore(t, StoreOptions{})
			_, err := s.Resolve(t.Context(), reg.host()+"/app:v1", Options{})
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tc.is, tc.says)
			}
			assertEmpty(t, s)
		})
	}
}

func TestI12_StalledTransfersEnd(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", strings.Repeat("x", 1<<20))}, compress: plain}, "slow:v1")
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		_, _ = w.Write(body[:20])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	reg.layer.Store(&hold)
	s := openStore(t, StoreOptions{stallTimeout: 50 * time.Millisecond})
	if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, ErrStalled) {
		t.Errorf("got %v, want ErrStalled", err)
	}
	assertEmpty(t, s)
}

func TestI12_LyingRegistriesFailTheDigest(t *testing.T) {
	t.Parallel()
	good := fixture{layers: [][]byte{layerOf(t, "a", "good")}, compress: plain}
	t.Run("layer", func(t *testing.T) {
		t.Parallel()
		reg := newTestRegistry(t)
		ref := reg.push(t, good, "app:v1")
		lie := func(w http.ResponseWriter, _ *http.Request, body []byte) {
			evil := append([]byte(nil), body...)
			copy(evil[512:], "evil")
			_, _ = w.Write(evil)
		}
		reg.layer.Store(&lie)
		s := openStore(t, StoreOptions{})
		if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, ErrDigest) && !strings.Contains(err.Error(), "sha256") {
			t.Errorf("got %v, want a digest error", err)
		}
		assertEmpty(t, s)
	})
	t.Run("manifest by digest", func(t *testing.T) {
		t.Parallel()
		reg := newTestRegistry(t)
		reg.push(t, good, "app:v1")
		digest := sha256Of([]byte("what was asked for")).String()
		reg.mu.Lock()
		reg.blobs["/v2/app/manifests/"+digest] = reg.blobs["/v2/app/manifests/v1"]
		reg.mu.Unlock()
		s := openStore(t, StoreOptions{})
		if _, err := s.Resolve(t.Context(), reg.host()+"/app@"+digest, Options{}); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("got %v, want a digest error", err)
		}
		assertEmpty(t, s)
	})
}

// A registry of the public internet redirects to special addresses; the forbidden
// listener must see nothing.
func TestI5_SpecialRedirectsAreNotDialled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		registry, host, addr string
		ok                   bool
	}{
		{"registry.example", "registry.example", "93.184.216.34", true},
		{"registry.example", "cdn.example", "93.184.216.35", true},
		{"registry.example", "registry.example", "10.1.2.3", true},
		{"registry.example", "registry.example", "169.254.169.254", false},
		{"registry.example", "cdn.example", "169.254.169.254", false},
		{"registry.example", "cdn.example", "127.0.0.1", false},
		{"registry.example", "cdn.example", "10.1.2.3", false},
		{"registry.example", "cdn.example", "::1", false},
		{"registry.example", "cdn.example", "::ffff:127.0.0.1", false},
		{"registry.example", "cdn.example", "fe80::1", false},
		{"registry.example", "cdn.example", "fd00:ec2::254", false},
		{"registry.example", "cdn.example", "64:ff9b::7f00:1", false},
		{"registry.example", "cdn.example", "2002:7f00:1::", false},
		{"registry.example", "cdn.example", "0.0.0.0", false},
		{"registry.example", "cdn.example", "168.63.129.16", false},
		{"registry.example", "cdn.example", "100.100.100.200", false},
		{"127.0.0.1", "127.0.0.1", "127.0.0.1", true},
		{"localhost", "localhost", "::1", true},
	} {
		err := newAddressPolicy().check(dialTarget{registry: tc.registry, host: tc.host, addr: netip.AddrPortFrom(netip.MustParseAddr(tc.addr), 443)})
		if (err == nil) != tc.ok || (err != nil && !errors.Is(err, ErrAddress)) {
			t.Errorf("%s leads to %s at %s: %v, want allowed %t", tc.registry, tc.host, tc.addr, err, tc.ok)
		}
	}
	// A registry inside an organisation may lead to its storage there, not to this machine.
	p := newAddressPolicy()
	target := func(host, addr string) dialTarget {
		return dialTarget{registry: "registry.corp", host: host, addr: netip.MustParseAddrPort(addr)}
	}
	if err := errors.Join(p.check(target("registry.corp", "10.0.0.1:443")), p.check(target("storage.corp", "10.0.0.2:443"))); err != nil {
		t.Errorf("a private registry: %v", err)
	}
	for _, addr := range []string{"127.0.0.1:443", "169.254.169.254:80"} {
		if err := p.check(target("storage.corp", addr)); !errors.Is(err, ErrAddress) {
			t.Errorf("a private registry leads to %s: %v, want ErrAddress", addr, err)
		}
	}
}

func TestDialPolicySeesTheExactAddress(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", "1")}}, "app:v1")
	refuse := errors.New("not today")
	var seen dialTarget
	s := openStore(t, StoreOptions{dialPolicy: func(d dialTarget) error { seen = d; return refuse }})
	if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, refuse) {
		t.Errorf("got %v, want the policy's error", err)
	}
	if seen.registry != "127.0.0.1" || seen.host != "127.0.0.1" || !seen.addr.Addr().IsLoopback() {
		t.Errorf("the policy saw %+v", seen)
	}
	if reg.gets.Load() != 0 {
		t.Error("the registry was reached")
	}
}

func TestLayoutsFromTheReferenceTools(t *testing.T) {
	t.Parallel()
	// A store never writes outside its own directory.
	parent := t.TempDir()
	s, err := Open(filepath.Join(parent, "images"), StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustResolve(t, s, "oci:"+fixture{layers: [][]byte{layerOf(t, "a", "1")}}.layout(t), Options{})
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the store: %v %v", entries, err)
	}
}
