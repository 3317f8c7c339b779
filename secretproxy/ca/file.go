package ca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

// fileMode of a stored root: its key is in the file.
const fileMode = 0o600

// Save writes certificate and key to path, mode 0600, in one rename, so that a
// crash leaves the old file or the new one.
func (a *Authority) Save(path string) error {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return fmt.Errorf("encoding the key of the sandbox's authority: %w", err)
	}
	out := append(a.CertPEM(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	defer clear(out)
	if err := renameio.WriteFile(path, out, fileMode, renameio.WithStaticPermissions(fileMode)); err != nil {
		return fmt.Errorf("storing the sandbox's authority: %w", err)
	}
	return nil
}

// Load reads what Save wrote. It refuses a file that others may read, and
// returns ErrExpired when the root's time is over.
func Load(path string) (*Authority, error) {
	return load(path, time.Now)
}

func load(path string, now func() time.Time) (*Authority, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's authority: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s holds a private key and may be read by others (mode %04o): remove it, a new one is made at the next start", path, info.Mode().Perm())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's authority: %w", err)
	}
	defer clear(data)
	cert, key, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: remove the file, a new one is made at the next start", path, err)
	}
	if !now().Before(cert.NotAfter.Add(-leafLifetime)) {
		return nil, fmt.Errorf("%s: %w", path, ErrExpired)
	}
	return finish(cert, key, now, rand.Reader)
}

func parse(data []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	var cert *x509.Certificate
	var key *ecdsa.PrivateKey
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			parsed, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, fmt.Errorf("not a certificate: %w", err)
			}
			cert = parsed
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("not a private key")
			}
			ec, ok := parsed.(*ecdsa.PrivateKey)
			if !ok {
				return nil, nil, errors.New("not an ECDSA key")
			}
			key = ec
		}
	}
	if cert == nil || key == nil || !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, errors.New("it doesn't hold an authority and its key")
	}
	return cert, key, nil
}
