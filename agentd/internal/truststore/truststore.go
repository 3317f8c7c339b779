//go:build linux

package truststore

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bundles are the files in which distributions keep all roots, after the list
// of Go's crypto/x509 (root_linux.go).
var bundles = []string{
	"etc/ssl/certs/ca-certificates.crt",                  // Debian, Alpine, Arch
	"etc/pki/tls/certs/ca-bundle.crt",                    // Fedora, RHEL
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",   // CentOS, RHEL 7 and newer
	"etc/pki/tls/cacert.pem",                             // OpenELEC
	"etc/ssl/ca-bundle.pem",                              // openSUSE
	"var/lib/ca-certificates/ca-bundle.pem",              // openSUSE, where the link points
	"etc/ssl/cert.pem",                                   // Alpine, OpenSSL's default
	"usr/local/share/certs/ca-root-nss.crt",              // FreeBSD-like images
	"etc/ca-certificates/extracted/tls-ca-bundle.pem",    // Arch
	"usr/share/pki/ca-trust-legacy/ca-bundle.legacy.crt", // old Fedora
}

// fallback is made when an image has no bundle at all.
const fallback = "etc/ssl/certs/ca-certificates.crt"

// anchors are the directories that distributions build their bundles from: with a
// copy there, update-ca-certificates keeps the certificate.
var anchors = []string{
	"usr/local/share/ca-certificates",
	"etc/pki/ca-trust/source/anchors",
	"etc/pki/trust/anchors",
	"etc/ca-certificates/trust-source/anchors",
}

const anchorName = "msb-sandbox-ca.crt"

// maxBundleBytes bounds what of an image's bundle is read: the web's roots are
// about 250 KB.
const maxBundleBytes = 16 << 20

// Install adds the certificates to every bundle below root, once however often
// it is called, and returns the bundle that variables should name. It must run
// where links in root mean what they mean to the workload. It goes on after an
// error and returns all of them.
func Install(root string, ca []byte) (bundle string, err error) {
	certs, err := certificates(ca)
	if err != nil || len(certs) == 0 {
		return "", err
	}
	var errs []error
	for _, name := range bundles {
		switch err := appendMissing(filepath.Join(root, name), certs); {
		case err == nil && bundle == "":
			bundle = "/" + name
		case err != nil && !errors.Is(err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("trust the sandbox's CA in /%s: %w", name, err))
		}
	}
	if bundle == "" {
		if err := create(filepath.Join(root, fallback), certs); err != nil {
			return "", errors.Join(append(errs, fmt.Errorf("make /%s: %w", fallback, err))...)
		}
		bundle = "/" + fallback
	}
	for _, dir := range anchors {
		if st, err := os.Stat(filepath.Join(root, dir)); err != nil || !st.IsDir() {
			continue
		}
		if err := create(filepath.Join(root, dir, anchorName), certs); err != nil {
			errs = append(errs, fmt.Errorf("keep the sandbox's CA in /%s: %w", dir, err))
		}
	}
	errs = append(errs, installJava(root, certs)...)
	return bundle, errors.Join(errs...)
}

// certificates splits a PEM text into its certificates, each normalised, so
// that they can be looked for in a bundle.
func certificates(text []byte) ([][]byte, error) {
	var certs [][]byte
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a %s is not to be trusted: send certificates only", block.Type)
		}
		certs = append(certs, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	if len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("the CA is not in PEM form")
	}
	return certs, nil
}

// appendMissing adds to an existing bundle what it does not hold yet.
func appendMissing(path string, certs [][]byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxBundleBytes {
		return fmt.Errorf("not a regular file of at most %d bytes", maxBundleBytes)
	}
	have, err := io.ReadAll(io.LimitReader(f, maxBundleBytes))
	if err != nil {
		return err
	}
	var add []byte
	if len(have) > 0 && have[len(have)-1] != '\n' {
		add = append(add, '\n')
	}
	missing := false
	for _, c := range certs {
		if !bytes.Contains(have, bytes.TrimSpace(c)) {
			add, missing = append(add, c...), true
		}
	}
	if !missing {
		return nil
	}
	if _, err := f.Write(add); err != nil {
		return err
	}
	return nil
}

func create(path string, certs [][]byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // public
		return err
	}
	return os.WriteFile(path, bytes.Join(certs, nil), 0o644) //nolint:gosec // public
}
