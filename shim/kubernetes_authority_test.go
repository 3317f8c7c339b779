//go:build containerdtest && kubernetestest

package shim_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// authority signs the certificates of a cluster's parts, which know each other by nothing else.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes DIR/ca.crt, and DIR/accounts.key, by which tokens of service accounts are signed.
func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := &authority{dir: dir, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key = a.write(t, "ca", a.cert, nil)
	a.write(t, "accounts", a.cert, nil)
	return a
}

// issue writes DIR/NAME.crt and .key of a member of a group, who may serve at addresses, too.
func (a *authority) issue(t *testing.T, name, user, group string, at ...string) {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user, Organization: []string{group}}, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, at := range at {
		if ip := net.ParseIP(at); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, at)
		}
	}
	a.write(t, name, c, a.key)
}

func (a *authority) file(name string) string { return a.dir + "/" + name }

func (a *authority) write(t *testing.T, name string, c *x509.Certificate, by *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key // signed by itself
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
}

// kubeconfig writes DIR/NAME.conf, by which who has the certificate NAME asks a server.
func (a *authority) kubeconfig(t *testing.T, name, server string) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, server, a.file("ca.crt"), a.file(name+".crt"), a.file(name+".key"))
	if err := os.WriteFile(a.file(name+".conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return a.file(name + ".conf")
}
