package sandbox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/msb-project/msb/image"
)

// anArchive holds an empty file for each name, and links.
func anArchive(t *testing.T, names []string, links map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 4, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte("data"))
		must(t, err)
	}
	for name, target := range links {
		must(t, w.WriteHeader(&tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink}))
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestI18_CommitsShareNoIdentity(t *testing.T) {
	t.Parallel()
	secret := []string{
		"etc/machine-id", "./etc/machine-id", "/etc/hostname", "etc//hosts", "a/../etc/resolv.conf", "var/lib/dbus/machine-id",
		"etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_rsa_key.pub", "etc/dropbear/dropbear_rsa_host_key", "var/lib/systemd/random-seed", "var/lib/seedrng/seed.credit", "run/msb-stop",
		"var/lib/urandom/random-seed", "var/lib/misc/random-seed", "var/lib/random-seed", "var/lib/systemd/credential.secret",
		"var/lib/NetworkManager/secret_key", "var/lib/dhcpcd/duid", "var/lib/dhcpcd/secret", "etc/dhcpcd.duid",
	}
	plain := []string{"etc/passwd", "etc/ssh/sshd_config", "etc/hosts.allow", "home/me/etc/hosts", "run/lock", "root/machine-id"}
	var b bytes.Buffer
	left := int64(1 << 20)
	must(t, copyArchive(&b, bytes.NewReader(anArchive(t, append(slices.Clone(secret), plain...), map[string]string{"usr/id": "etc/machine-id", "usr/passwd": "etc/passwd"})), &left, leftOut))
	var got []string
	for r := tar.NewReader(&b); ; {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		got = append(got, hdr.Name)
	}
	if want := append(plain, "usr/passwd"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := copyArchive(io.Discard, bytes.NewReader(anArchive(t, plain, nil)[:1100]), &left, nil); err == nil {
		t.Error("an archive that is cut short is copied")
	}
}

func TestCommittedImagesAreLoaded(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	store, err := Store(h)
	must(t, err)
	config := image.Config{Env: []string{"A=b"}, Cmd: []string{"run"}, Entrypoint: []string{"/init"}, WorkingDir: "/srv", User: "me", StopSignal: "SIGINT"}
	all, err := store.Load(t.Context(), anImageArchive(t, "tools:1", &config), image.LoadOptions{})
	must(t, err)
	got, err := store.Resolve(t.Context(), "tools:1", image.Options{Pull: image.PullNever})
	must(t, err)
	if len(all) != 1 || got.Digest != all[0].Digest || got.Config.User != "me" || got.Config.StopSignal != "SIGINT" || got.Config.WorkingDir != "/srv" ||
		!slices.Equal(got.Config.Env, config.Env) || !slices.Equal(got.Config.Cmd, config.Cmd) || !slices.Equal(got.Config.Entrypoint, config.Entrypoint) {
		t.Errorf("%+v, %+v", got, all)
	}
}

// anImageArchive is an image of one file.
func anImageArchive(t *testing.T, ref string, config *image.Config) *bytes.Buffer {
	t.Helper()
	text := anArchive(t, []string{"etc/passwd"}, nil)
	layer, err := os.Create(filepath.Join(t.TempDir(), "layer"))
	must(t, err)
	defer func() { _ = layer.Close() }()
	_, err = layer.Write(text)
	must(t, err)
	sum := sha256.Sum256(text)
	b := new(bytes.Buffer)
	must(t, writeImage(b, ref, config, layer, hex.EncodeToString(sum[:])))
	return b
}

func TestI14_CommitsNameImagesOfTheCache(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	for _, ref := range []string{"", "builtin", "oci:x", "docker-archive:/etc/passwd", "dir:/etc", "../x", "A", "a:b:c", "a@sha256:00"} {
		if _, err := h.Snapshots().Commit(t.Context(), "web", ref, StartOptions{}); !errors.Is(err, image.ErrReference) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, err := h.Snapshots().Commit(t.Context(), "nosuch", "tools:1", StartOptions{}); !errors.Is(err, ErrNoSandbox) {
		t.Error(err)
	}
}
