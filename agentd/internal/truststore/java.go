//go:build linux

package truststore

import (
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// javaStores are where Java runtimes keep their roots; many are links to one another.
var javaStores = []string{
	"etc/ssl/certs/java/cacerts",               // Debian
	"etc/pki/ca-trust/extracted/java/cacerts",  // Fedora
	"etc/pki/java/cacerts",                     // old Fedora
	"var/lib/ca-certificates/java-cacerts",     // openSUSE
	"usr/lib/jvm/*/lib/security/cacerts",       // Alpine, Arch
	"usr/lib/jvm/*/jre/lib/security/cacerts",   // Java 8
	"opt/*/lib/security/cacerts",               // unpacked archives
	"opt/java/*/lib/security/cacerts",          // Temurin's images
	"usr/java/*/lib/security/cacerts",          // Oracle's
	"usr/local/openjdk-*/lib/security/cacerts", // Docker's openjdk
	"usr/local/*/jre/lib/security/cacerts",     // others of the kind
	"usr/local/sdkman/candidates/java/*/lib/security/cacerts",
}

// javaPassword seals every runtime's own cacerts; it is documented and protects nothing.
const javaPassword = "changeit"

var errJavaStore = errors.New("not a keystore of a kind that can be added to")

// installJava adds the certificates to every Java keystore below root, once.
func installJava(root string, certs [][]byte) []error {
	var errs []error
	for _, pattern := range javaStores {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return append(errs, err)
		}
		for _, path := range found {
			if err := addToJava(path, certs); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("trust the sandbox's CA in Java's %s: %w", path, err))
			}
		}
	}
	return errs
}

func addToJava(path string, certs [][]byte) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxBundleBytes {
		return fmt.Errorf("not a regular file of at most %d bytes (%w)", maxBundleBytes, err)
	}
	have, err := io.ReadAll(io.LimitReader(f, maxBundleBytes))
	if err != nil {
		return err
	}
	var missing [][]byte
	for _, c := range certs {
		if block, _ := pem.Decode(c); block != nil && !bytes.Contains(have, block.Bytes) {
			missing = append(missing, block.Bytes)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	add := addToPKCS12
	if len(have) >= 4 && binary.BigEndian.Uint32(have) == jksMagic {
		add = addToJKS
	}
	out, err := add(have, missing)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(out, 0)
	return errors.Join(err, f.Truncate(int64(len(out))))
}
