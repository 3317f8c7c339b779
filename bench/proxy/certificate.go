package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy/ca"
)

// writeCertificate puts an authority, a certificate and its key into dir.
func writeCertificate(dir string) error {
	authority, err := ca.New("bench upstream")
	if err != nil {
		return err
	}
	leaf, err := authority.ForName(hostname.MustParse(host))
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	for name, data := range map[string][]byte{
		"ca.pem": authority.CertPEM(), "cert.pem": cert, "key.pem": keyPEM, "both.pem": append(append([]byte(nil), cert...), keyPEM...),
	} {
		// Squid drops its privileges before it reads them.
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}
