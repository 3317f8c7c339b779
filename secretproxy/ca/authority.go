package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"time"

	"github.com/msb-project/msb/hostname"
)

// Validity of what is issued. Days, not years: a root that leaks from a guest's
// disk is worth nothing soon after the sandbox is gone.
const (
	// rootLifetime is how long a root is valid.
	rootLifetime = 30 * 24 * time.Hour
	// leafLifetime is how long a leaf is valid, cut to the root's end.
	leafLifetime = 7 * 24 * time.Hour
	// backdate is how far NotBefore lies in the past: a guest whose clock runs
	// behind would refuse a certificate from its future.
	backdate = 24 * time.Hour
	// renewBefore is the rest of a leaf's life at which it's signed again.
	renewBefore = leafLifetime / 4
	// serialBits is the size of serial numbers (RFC 5280 allows 20 octets; 8
	// of randomness is what the CA/Browser Forum asks for).
	serialBits = 120
)

// ErrExpired says that a stored root is no longer valid; make a new one.
var ErrExpired = errors.New("the sandbox's certificate authority has expired")

// Authority is the root of one sandbox. It is safe for concurrent use.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	leafKey *ecdsa.PrivateKey // one for all leaves: signing stays the only cost of a new name
	leaves  *leafCache

	now  func() time.Time
	rand io.Reader
}

// New makes a root for the sandbox of that name. The name is for people who
// look into a trust store; nothing depends on it.
func New(sandbox string) (*Authority, error) {
	return newAuthority(sandbox, time.Now, rand.Reader)
}

func newAuthority(sandbox string, now func() time.Time, random io.Reader) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, fmt.Errorf("making the key of the sandbox's authority: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	const maxCommonName = 64 // ub-common-name, RFC 5280 appendix A.1
	cn := "msb sandbox " + sandbox
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: cn[:min(len(cn), maxCommonName)], Organization: []string{"msb"}},
		NotBefore:             now().Add(-backdate),
		NotAfter:              now().Add(rootLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // no intermediate can be made under it
	}
	der, err := x509.CreateCertificate(random, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the sandbox's authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back the sandbox's authority: %w", err)
	}
	return finish(cert, key, now, random)
}

// finish builds an Authority around a root, new or loaded.
func finish(cert *x509.Certificate, key *ecdsa.PrivateKey, now func() time.Time, random io.Reader) (*Authority, error) {
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, fmt.Errorf("making the key of the sandbox's leaves: %w", err)
	}
	return &Authority{cert: cert, key: key, leafKey: leafKey, leaves: newLeafCache(maxLeaves), now: now, rand: random}, nil
}

// CertPEM returns the root certificate, without its key, as PEM.
func (a *Authority) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certificate returns the root certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// ForName returns a leaf for that name.
func (a *Authority) ForName(name hostname.Name) (*tls.Certificate, error) {
	return a.leaf(name.String(), func(t *x509.Certificate) { t.DNSNames = []string{name.String()} })
}

// ForAddr returns a leaf for a literal address, which clients verify against
// the certificate's iPAddress entries.
func (a *Authority) ForAddr(addr netip.Addr) (*tls.Certificate, error) {
	addr = addr.Unmap().WithZone("")
	return a.leaf(addr.String(), func(t *x509.Certificate) { t.IPAddresses = append(t.IPAddresses, addr.AsSlice()) })
}

func (a *Authority) leaf(subject string, fill func(*x509.Certificate)) (*tls.Certificate, error) {
	if cert := a.leaves.get(subject, a.now().Add(renewBefore)); cert != nil {
		return cert, nil
	}
	cert, err := a.sign(subject, fill)
	if err != nil {
		return nil, err
	}
	a.leaves.put(subject, cert)
	return cert, nil
}

func (a *Authority) sign(subject string, fill func(*x509.Certificate)) (*tls.Certificate, error) {
	serial, err := newSerial(a.rand)
	if err != nil {
		return nil, err
	}
	end := a.now().Add(leafLifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// No common name: names longer than its 64 characters exist, and
		// clients look at the subject alternative names only (RFC 9525).
		Subject:     pkix.Name{Organization: []string{"msb"}},
		NotBefore:   a.now().Add(-backdate),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Required so that path validation doesn't take the leaf for a CA.
		BasicConstraintsValid: true,
	}
	fill(template)
	der, err := x509.CreateCertificate(a.rand, template, a.cert, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing a leaf for %s: %w", subject, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back the leaf for %s: %w", subject, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: parsed}, nil
}

func newSerial(random io.Reader) (*big.Int, error) {
	serial := make([]byte, serialBits/8)
	if _, err := io.ReadFull(random, serial); err != nil {
		return nil, fmt.Errorf("reading randomness for a serial number: %w", err)
	}
	serial[0] |= 1 // never zero
	return new(big.Int).SetBytes(serial), nil
}
