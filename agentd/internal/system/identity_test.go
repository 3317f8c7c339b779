//go:build linux

package system

import (
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// diskTree makes files below a new directory; "-> x" is a link.
func diskTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(path, []byte(text), 0o444)
		if to, link := strings.CutPrefix(text, "-> "); link {
			_ = os.Remove(path)
			err = os.Symlink(to, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestI18_CopiesGetTheirOwnIdentity lists what two copies of one disk would have in common, and what they may.
func TestI18_CopiesGetTheirOwnIdentity(t *testing.T) {
	t.Parallel()
	const parents = "0123456789abcdef0123456789abcdef\n"
	files := map[string]string{
		"etc/machine-id": parents, "var/lib/dbus/machine-id": parents,
		"etc/ssh/ssh_host_ed25519_key": parents, "etc/ssh/ssh_host_ed25519_key.pub": parents, "etc/ssh/ssh_host_rsa_key": parents, "etc/ssh/ssh_host_rsa_key.pub": parents,
		"etc/ssh/ssh_host_ecdsa_key": parents, "etc/dropbear/dropbear_rsa_host_key": parents,
		"var/lib/systemd/random-seed": parents, "var/lib/urandom/random-seed": parents, "var/lib/misc/random-seed": parents, "var/lib/random-seed": parents, "var/lib/seedrng/seed.credit": parents,
		"var/lib/systemd/credential.secret": parents, "var/lib/NetworkManager/secret_key": parents, "var/lib/dhcpcd/duid": parents, "var/lib/dhcpcd/secret": parents, "etc/dhcpcd.duid": parents,
	}
	kept := map[string]string{"etc/ssh/sshd_config": "Port 22\n", "etc/passwd": "root", "root/.ssh/id_ed25519": "the user's own", "etc/ssh/moduli": "m"}
	for name, text := range kept {
		files[name] = text
	}
	found := map[string]int{}
	for range 2 {
		root := diskTree(t, files)
		if err := RenewIdentity(root); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			name, _ := filepath.Rel(root, path)
			if want, ok := kept[name]; ok && string(b) != want {
				t.Errorf("%s is %q", name, b)
			} else if !ok {
				if string(b) == parents {
					t.Errorf("%s is the parent's", name)
				}
				if name == "var/lib/dbus/machine-id" { // the same as the other, of one machine
					other, _ := os.ReadFile(filepath.Join(root, "etc/machine-id"))
					if string(other) != string(b) {
						t.Errorf("two ids: %q and %q", other, b)
					}
					return err
				}
				found[string(b)]++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
		if b, e := hex.DecodeString(strings.TrimSpace(string(id))); err != nil || e != nil || len(b) != 16 || len(id) != 33 || b[6]>>4 != 4 || b[8]>>6 != 2 {
			t.Errorf("machine-id %q: %v, %v", id, err, e)
		}
		key, err := os.ReadFile(filepath.Join(root, hostKey))
		if err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.ParsePrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := os.ReadFile(filepath.Join(root, hostKey+".pub"))
		if err != nil || string(public) != string(ssh.MarshalAuthorizedKey(signer.PublicKey())) {
			t.Errorf("public key %q, %v", public, err)
		}
		if info, err := os.Stat(filepath.Join(root, hostKey)); err != nil || info.Mode() != 0o600 {
			t.Errorf("the key's mode: %v, %v", info, err)
		}
	}
	for text, n := range found {
		if n > 1 {
			t.Errorf("both copies have %q", text)
		}
	}
	if len(found) != 2*3 { // the id, the key and its public half
		t.Errorf("%d files are new, want 6", len(found))
	}
}

// TestIdentityIsOnlyWhatIsThere: nothing is made that the disk did not have.
func TestIdentityIsOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct{ before, after map[string]string }{
		"nothing":        {nil, nil},
		"not made yet":   {map[string]string{"etc/machine-id": "uninitialized\n"}, map[string]string{"etc/machine-id": "uninitialized\n"}},
		"empty":          {map[string]string{"etc/machine-id": ""}, map[string]string{"etc/machine-id": ""}},
		"a dead link":    {map[string]string{"etc/machine-id": "-> nowhere"}, map[string]string{"etc/machine-id": "-> nowhere"}},
		"dropbear's key": {map[string]string{"etc/dropbear/dropbear_ed25519_host_key": "k"}, map[string]string{}},
	} {
		root := diskTree(t, tc.before)
		if err := RenewIdentity(root); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var left []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, _ error) error {
			if name, _ := filepath.Rel(root, path); !d.IsDir() {
				left = append(left, name)
			}
			return nil
		})
		for name, want := range tc.after {
			got, err := os.ReadFile(filepath.Join(root, name))
			if to, link := strings.CutPrefix(want, "-> "); link {
				target, e := os.Readlink(filepath.Join(root, name))
				want, got, err = to, []byte(target), e
			}
			if err != nil || string(got) != want || !slices.Contains(left, name) {
				t.Errorf("%s: %s is %q, %v", what, name, got, err)
			}
		}
		if len(left) != len(tc.after) {
			t.Errorf("%s: %v", what, left)
		}
	}
	// A link to the other file stays one.
	root := diskTree(t, map[string]string{"etc/machine-id": "0123\n", "var/lib/dbus/machine-id": "-> /etc/machine-id"})
	if err := RenewIdentity(root); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(root, "var/lib/dbus/machine-id")); err != nil || to != "/etc/machine-id" {
		t.Errorf("%q, %v", to, err)
	}
	// One that is a link itself leads to the parent's.
	root = diskTree(t, map[string]string{"var/id": "0123\n", "etc/machine-id": "-> ../var/id"})
	if err := RenewIdentity(root); err != nil {
		t.Fatal(err)
	}
	if id, err := os.ReadFile(filepath.Join(root, "etc/machine-id")); err != nil || len(id) != 33 {
		t.Errorf("%q, %v", id, err)
	}
}
