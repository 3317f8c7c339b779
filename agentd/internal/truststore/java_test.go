//go:build linux

package truststore

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The stores under testdata hold one certificate; keytool of Java 17 made them:
//
//	keytool -importcert -storetype JKS|PKCS12 -storepass changeit
//
// the PKCS #12 one with certProtectionAlgorithm and macAlgorithm NONE, as runtimes come with.
func TestInstallAddsToJavaKeystoresOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cacerts.jks", "cacerts.p12"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			store := filepath.Join(root, "etc/ssl/certs/java/cacerts")
			write(t, store, string(own))
			link := filepath.Join(root, "usr/lib/jvm/java-17/lib/security/cacerts")
			if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(store, link)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := Install(root, []byte(cert("the sandbox's"))); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(store)
			if err != nil || bytes.Count(got, []byte("the sandbox's")) != 1 || !bytes.Contains(got, []byte("image-own")) {
				t.Errorf("%v: %d bytes, of %d before; want both certificates, each once", err, len(got), len(own))
			}
			if name == "cacerts.jks" {
				body := len(got) - 20
				if binary.BigEndian.Uint32(got[8:]) != 2 || !bytes.Equal(jksSum(got[:body]), got[body:]) {
					t.Error("the number of entries or the checksum is wrong")
				}
				return
			}
			var p pfx
			if rest, err := asn1.Unmarshal(got, &p); err != nil || len(rest) > 0 {
				t.Errorf("%v, %d bytes too many", err, len(rest))
			}
		})
	}
}

func TestUnusableJavaKeystoresAreLeftAlone(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("testdata/cacerts.jks")
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(own)
	damaged[len(damaged)-1]++
	sound, err := os.ReadFile("testdata/cacerts.p12")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"PKCS #12 with more behind it": append(bytes.Clone(sound), 0),
		"empty":                        {}, "cut": own[:20], "another password, or damaged": damaged, "text": []byte("no keystore"),
		"PKCS #12 of nothing": {0x30, 0x03, 0x02, 0x01, 0x03},
	} {
		root := t.TempDir()
		store := filepath.Join(root, "etc/pki/java/cacerts")
		write(t, store, string(text))
		bundle, err := Install(root, []byte(cert("the sandbox's")))
		if !errors.Is(err, errJavaStore) || bundle == "" {
			t.Errorf("%s: bundle %q, %v; want the bundle all the same, and the store's name", name, bundle, err)
		}
		if got, err := os.ReadFile(store); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %v, changed to %q", name, err, got)
		}
	}
}
