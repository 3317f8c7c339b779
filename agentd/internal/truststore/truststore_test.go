//go:build linux

package truststore

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func cert(body string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(body)}))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInstallAddsToEveryBundleOnce(t *testing.T) {
	t.Parallel()
	own, mine := cert("the image's own"), cert("the sandbox's")
	for name, files := range map[string][]string{
		"Debian":           {"etc/ssl/certs/ca-certificates.crt"},
		"Alpine":           {"etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem"},
		"Fedora":           {"etc/pki/tls/certs/ca-bundle.crt", "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"},
		"openSUSE":         {"etc/ssl/ca-bundle.pem", "var/lib/ca-certificates/ca-bundle.pem"},
		"none, as scratch": {},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range files {
				write(t, filepath.Join(root, f), strings.TrimSpace(own)) // without its last newline
			}
			var bundle string
			for range 3 {
				var err error
				if bundle, err = Install(root, []byte("a comment\n"+mine)); err != nil {
					t.Fatal(err)
				}
			}
			if len(files) == 0 {
				files = []string{fallback}
				own = ""
			}
			if bundle != "/"+files[0] {
				t.Errorf("bundle %s, want /%s", bundle, files[0])
			}
			for _, f := range files {
				b, err := os.ReadFile(filepath.Join(root, f))
				if err != nil || bytes.Count(b, []byte(strings.TrimSpace(mine))) != 1 || !strings.HasPrefix(string(b), strings.TrimSpace(own)) {
					t.Errorf("%s: %v\n%s", f, err, b)
				}
				if rest, n := b, 0; true {
					for {
						var block *pem.Block
						if block, rest = pem.Decode(rest); block == nil {
							break
						}
						n++
					}
					if want := 1 + strings.Count(own, "BEGIN"); n != want {
						t.Errorf("%s holds %d certificates that parse, want %d", f, n, want)
					}
				}
			}
		})
	}
}

func TestInstallFollowsLinksAndKeepsAnchors(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), "")
	if err := os.Symlink("certs/ca-certificates.crt", filepath.Join(root, "etc/ssl/cert.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "usr/local/share/ca-certificates"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(root, []byte(cert("x"))); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"etc/ssl/cert.pem", "usr/local/share/ca-certificates/" + anchorName} {
		if b, err := os.ReadFile(filepath.Join(root, f)); err != nil || string(b) != cert("x") {
			t.Errorf("%s: %v, %q", f, err, b)
		}
	}
}

func TestInstallRefusesWhatIsNoCertificate(t *testing.T) {
	t.Parallel()
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("k")})
	for _, text := range []string{"not PEM", string(key), cert("x") + "rest"} {
		root := t.TempDir()
		if _, err := Install(root, []byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
		if left, _ := os.ReadDir(root); len(left) > 0 {
			t.Errorf("%q left %v", text, left)
		}
	}
	if bundle, err := Install(t.TempDir(), nil); err != nil || bundle != "" || Env(bundle) != nil {
		t.Errorf("no CA: %q, %v", bundle, err)
	}
}

// TestI18_ForgottenAuthoritiesAreGone takes a parent's certificate out of a clone's lists, and nothing else.
func TestI18_ForgottenAuthoritiesAreGone(t *testing.T) {
	t.Parallel()
	own, parents, mine := cert("the image's own"), cert("the parent's"), cert("the clone's")
	for what, before := range map[string]string{"a bundle": own, "one without its last newline": strings.TrimSpace(own), "an empty one": ""} {
		root := t.TempDir()
		bundle := filepath.Join(root, bundles[0])
		anchor := filepath.Join(root, anchors[0], anchorName)
		write(t, bundle, before)
		write(t, filepath.Join(filepath.Dir(anchor), "other.crt"), own)
		if _, err := Install(root, []byte(parents)); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(bundle); !bytes.Contains(b, []byte(parents)) { // the twin
			t.Errorf("%s: the parent's is not there to begin with", what)
		}
		for range 2 {
			if err := Forget(root, []byte(parents)); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := os.ReadFile(bundle); err != nil || strings.TrimSpace(string(b)) != strings.TrimSpace(before) {
			t.Errorf("%s: %q, %v; want %q", what, b, err, before)
		}
		if _, err := os.Stat(anchor); err == nil {
			t.Errorf("%s: the anchor is still there", what)
		}
		if _, err := Install(root, []byte(mine)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(bundle); err != nil || !bytes.Contains(b, []byte(mine)) || bytes.Contains(b, []byte(parents)) {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
	if err := Forget(t.TempDir(), nil); err != nil {
		t.Error(err)
	}
}

// TestI18_EveryListForgets: an image may have several lists and anchors, and a sandbox several parents.
func TestI18_EveryListForgets(t *testing.T) {
	t.Parallel()
	root, own := t.TempDir(), cert("the image's own")
	parents := cert("the parent's") + cert("the grandparent's")
	for _, name := range bundles {
		write(t, filepath.Join(root, name), own)
	}
	for _, dir := range anchors {
		write(t, filepath.Join(root, dir, "other.crt"), own)
	}
	if _, err := Install(root, []byte(parents)); err != nil {
		t.Fatal(err)
	}
	holds := func(name string) bool {
		b, err := os.ReadFile(filepath.Join(root, name))
		return err == nil && strings.Contains(string(b), cert("the grandparent's")) && strings.Contains(string(b), cert("the parent's"))
	}
	for _, name := range bundles {
		if !holds(name) { // the twin
			t.Errorf("%s has no parents to begin with", name)
		}
	}
	if err := Forget(root, []byte(parents)); err != nil {
		t.Fatal(err)
	}
	for _, name := range bundles {
		if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || strings.TrimSpace(string(b)) != strings.TrimSpace(own) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, dir := range anchors {
		if _, err := os.Stat(filepath.Join(root, dir, anchorName)); err == nil {
			t.Errorf("%s has an anchor", dir)
		}
		if _, err := os.Stat(filepath.Join(root, dir, "other.crt")); err != nil {
			t.Errorf("another's anchor: %v", err)
		}
	}
}

// TestUnusableListsAreLeftAlone: an image may have anything in the place of a list, and the others are used all the same. Of one
// that is too large to be read nothing may be lost.
func TestUnusableListsAreLeftAlone(t *testing.T) {
	t.Parallel()
	mine := cert("the sandbox's")
	huge := mine + strings.Repeat(" ", maxBundleBytes) + "last"
	for what, put := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.MkdirAll(path, 0o755) },
		"too large":   func(path string) error { write(t, path, huge); return nil },
	} {
		root := t.TempDir()
		list := filepath.Join(root, bundles[1])
		write(t, filepath.Join(root, anchors[0]), "no directory")
		if err := put(list); err != nil {
			t.Fatal(err)
		}
		bundle, err := Install(root, []byte(mine))
		if bundle != "/"+fallback || err == nil || !strings.Contains(err.Error(), bundles[1]) || strings.Contains(err.Error(), anchors[0]) {
			t.Errorf("%s: installed in %q, %v; want it in another, and the list's name", what, bundle, err)
		}
		if err := Forget(root, []byte(mine)); what == "too large" && err != nil {
			t.Errorf("%s: forget: %v", what, err)
		}
		if got, err := os.ReadFile(list); what == "too large" && (err != nil || string(got) != huge) {
			t.Errorf("%s: %d bytes are left of %d, %v", what, len(got), len(huge), err)
		}
		if err := os.Remove(filepath.Join(root, fallback)); err != nil {
			t.Fatal(err)
		}
		if got := Bundle(root); what == "a directory" && got != "" {
			t.Errorf("%s is the list %q", what, got)
		}
	}
}
