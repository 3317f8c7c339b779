package ca

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
)

func TestLeavesVerifyForTheirNameOnly(t *testing.T) {
	t.Parallel()
	a, err := New("box")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.CertPEM()) {
		t.Fatal("CertPEM is not PEM")
	}
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example"
	for _, name := range []string{"api.example.com", "xn--bcher-kva.example", long} {
		leaf, err := a.ForName(hostname.MustParse(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "other.example"}); err == nil {
			t.Errorf("%s verifies for another name", name)
		}
	}
	for _, addr := range []string{"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"} {
		leaf, err := a.ForAddr(netip.MustParseAddr(addr))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: netip.MustParseAddr(addr).Unmap().String()}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestTwoSandboxesShareNoAuthority(t *testing.T) {
	t.Parallel()
	a, errA := New("box")
	b, errB := New("box")
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate())
	leaf, err := b.ForName(hostname.MustParse("api.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "api.example.com"}); err == nil {
		t.Error("a leaf of one sandbox verifies in another")
	}
	if a.fingerprint() == b.fingerprint() {
		t.Error("the fingerprints are equal")
	}
}

func TestRootCertificatesAreShortLived(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, err := newAuthority(strings.Repeat("x", 200), func() time.Time { return now }, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := a.Certificate()
	if !c.MaxPathLenZero || c.MaxPathLen != 0 || !c.IsCA {
		t.Errorf("path length %d, CA %v", c.MaxPathLen, c.IsCA)
	}
	if life := c.NotAfter.Sub(now); life > 31*24*time.Hour {
		t.Errorf("the root lives for %v", life)
	}
	if !c.NotBefore.Before(now.Add(-23 * time.Hour)) {
		t.Errorf("the root is valid from %v", c.NotBefore)
	}
}

func TestI11_LeavesAreBoundedAndRenewed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, err := newAuthority("box", func() time.Time { return now }, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.leaves.max = 8
	first, err := a.ForName(hostname.MustParse("first.example"))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := a.ForName(hostname.MustParse("first.example")); again != first {
		t.Error("the leaf was not kept")
	}
	for i := range 20 {
		if _, err := a.ForName(hostname.MustParse(fmt.Sprintf("n%d.example", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.leaves.order.Len(); n != 8 || len(a.leaves.at) != n {
		t.Errorf("%d leaves are kept and %d found, want 8", n, len(a.leaves.at))
	}
	if again, _ := a.ForName(hostname.MustParse("first.example")); again == first {
		t.Error("the leaf unused for longest is still handed out")
	}
	oldest, _ := a.ForName(hostname.MustParse("n14.example"))
	for i := range 7 {
		_, _ = a.ForName(hostname.MustParse(fmt.Sprintf("m%d.example", i)))
	}
	if again, _ := a.ForName(hostname.MustParse("n14.example")); again != oldest {
		t.Error("a leaf that was used was forgotten before others")
	}
	kept, _ := a.ForName(hostname.MustParse("n19.example"))
	now = now.Add(leafLifetime - time.Hour)
	if renewed, _ := a.ForName(hostname.MustParse("n19.example")); renewed == kept {
		t.Error("a leaf with an hour left was handed out")
	}
}

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.pem")
	a, err := New("box")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Save(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	b, err := Load(path)
	if err != nil || b.fingerprint() != a.fingerprint() {
		t.Errorf("Load: %v", err)
	}
	later := func() time.Time { return time.Now().Add(rootLifetime) }
	if _, err := load(path, later); !errors.Is(err, ErrExpired) {
		t.Errorf("got %v, want ErrExpired", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("a key of mode %v was loaded: %v", mode, err)
		}
	}
}

func TestI12_DamagedFilesHaveRemedies(t *testing.T) {
	t.Parallel()
	a, err := New("box")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.ForName(hostname.MustParse("a.example"))
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = leaf.Leaf, a.leafKey // as Save would store it
	noAuthority := filepath.Join(t.TempDir(), "leaf.pem")
	if err := a.Save(noAuthority); err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile(noAuthority)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("hello"), "without key": a.CertPEM(), "no authority": stored} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkNewLeaf(b *testing.B) {
	a, err := New("box")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := a.ForName(hostname.MustParse(fmt.Sprintf("n%d.example", i))); err != nil {
			b.Fatal(err)
		}
	}
}

// fingerprint is the SHA-256 of the root certificate.
func (a *Authority) fingerprint() [sha256.Size]byte { return sha256.Sum256(a.cert.Raw) }
