package sandbox

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// TestImportedSnapshotsTakeNothing exports a sandbox that takes much from this machine. What comes in has the disk, the
// variables and the size, and nothing else.
func TestImportedSnapshotsTakeNothing(t *testing.T) {
	t.Parallel()
	h, to := newHome(t), newHome(t)
	must(t, aNamed(t, h, "web"))
	store, err := Store(h)
	must(t, err)
	img, err := store.Resolve(t.Context(), DefaultImage, image.Options{})
	must(t, err)
	st, err := loadStored(h, "web")
	must(t, err)
	st.Policy, st.PolicyFile, st.Image, st.ImageDigest = "version = 1\n[egress]\ndefault = \"public\"\n", "/a/policy.toml", DefaultImage, img.Digest
	st.Directories, st.Ports, st.Audit, st.Pcap = []Directory{{Host: "/home", Guest: "/h", Writable: true}}, []Port{{Host: 80, Guest: 80}}, "/a/audit", "/a/pcap"
	st.Placeholders, st.Env, st.Memory, st.ReadOnly = map[string]string{"KEY": "a-placeholder"}, []string{"A=b"}, 1<<30, true
	st.HTTPProxy, st.CPUs, st.Tmpfs, st.ForgetCA = true, 3, []Tmpfs{{Path: "/run", Size: 1 << 20}}, aCertificate(t)
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	onDisk(t, h, "web", "far")
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Labels: map[string]string{"a": "b"}})
	must(t, err)
	var archive bytes.Buffer
	must(t, h.Snapshots().Export(t.Context(), "web-1", &archive))
	s, err := to.Snapshots().Import(t.Context(), bytes.NewReader(archive.Bytes()), "")
	must(t, err)
	if !s.Imported || s.Name != "web-1" || s.Sandbox != "web" || s.Labels["a"] != "b" || s.ImageDigest != img.Digest {
		t.Errorf("%+v", s)
	}
	if _, err := to.Snapshots().Import(t.Context(), bytes.NewReader(archive.Bytes()), ""); !errors.Is(err, ErrSnapshotExists) {
		t.Errorf("twice: %v", err)
	}
	if _, err := to.Snapshots().Import(t.Context(), bytes.NewReader(archive.Bytes()), "again"); err != nil {
		t.Errorf("under another name: %v", err)
	}
	if err := to.Snapshots().Clone(t.Context(), "web-1", "in", CloneOptions{}); !errors.Is(err, image.ErrNotCached) || !strings.Contains(err.Error(), "msb image pull") {
		t.Errorf("without the image: %v", err)
	}
	there, err := Store(to)
	must(t, err)
	_, err = there.Resolve(t.Context(), DefaultImage, image.Options{})
	must(t, err)
	must(t, to.Snapshots().Clone(t.Context(), "web-1", "in", CloneOptions{}))
	wantOnDisk(t, to, "in", "far")
	got, err := loadStored(to, "in")
	must(t, err)
	if len(got.Directories) > 0 || len(got.Ports) > 0 || got.Audit != "" || got.Pcap != "" || got.PolicyFile != "" || len(got.Placeholders) > 0 || len(got.Grants) > 0 || strings.Contains(got.Policy, "public") {
		t.Errorf("it takes something: %+v", got)
	}
	if !slices.Equal(got.Env, []string{"A=b"}) || got.Memory != 1<<30 || !got.ReadOnly || !got.NewIdentity || !got.PolicyImage || len(got.ImageConfig.Cmd) == 0 {
		t.Errorf("it lost something: %+v", got)
	}
	if !got.HTTPProxy || got.CPUs != 3 || !slices.Equal(got.Tmpfs, st.Tmpfs) || got.Disk != 64<<20 || got.NoNet || got.ForgetCA != st.ForgetCA {
		t.Errorf("it lost something: %+v", got)
	}
	if cfg, err := configOf(got); err != nil || cfg.fill() != nil {
		t.Errorf("it can't be started: %v", err)
	}
	// One of the same name and time is not the sandbox that it was taken of.
	must(t, aNamed(t, to, "web"))
	other, err := loadStored(to, "web")
	must(t, err)
	other.Created = s.Created // an archive says what it likes
	must(t, state.WriteJSON(namedPath(to, "web"), state.StoredFile, other))
	if err := to.Snapshots().Restore(t.Context(), "web-1", ""); !errors.Is(err, ErrSnapshotOf) {
		t.Errorf("restored: %v", err)
	}
}

// aCertificate is one in PEM form.
func aCertificate(t *testing.T) string {
	t.Helper()
	made, err := ca.New("a test")
	must(t, err)
	return string(made.CertPEM())
}

func TestLocalImagesAreNotExported(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Image = "dir:/srv/root"
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{})
	must(t, err)
	var archive bytes.Buffer
	if err := h.Snapshots().Export(t.Context(), "web-1", &archive); !errors.Is(err, image.ErrReference) || archive.Len() > 0 {
		t.Errorf("%v, and %d bytes", err, archive.Len())
	}
}

// TestI12_HostileSettingsAreRefused: each differs in one thing from what is taken.
func TestI12_HostileSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good := func() (*diskstore.Manifest, *diskstore.List) {
		return &diskstore.Manifest{
			Name: "web-1", Sandbox: "web", Created: time.Now(), Image: "alpine:3.20", ImageDigest: "sha256:" + strings.Repeat("0", 64), CPUs: 2, Memory: 1 << 30, Env: []string{"A=b"},
		}, &diskstore.List{Size: 1 << 20}
	}
	for _, more := range []int64{0, 512} {
		m, l := good()
		l.Size += more
		if _, err := configOfArchive(m, l); err != nil {
			t.Fatal(err)
		}
	}
	for what, change := range map[string]func(*diskstore.Manifest, *diskstore.List){
		"a path for a name":     func(m *diskstore.Manifest, _ *diskstore.List) { m.Sandbox = "../x" },
		"no name":               func(m *diskstore.Manifest, _ *diskstore.List) { m.Sandbox = "" },
		"a directory for image": func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "dir:/home" },
		"an archive for image":  func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "docker-archive:/home/x" },
		"a layout for image":    func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "oci:/home/x" },
		"no image":              func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "" },
		"a URL for image":       func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "https://x/y" },
		"escapes in the image":  func(m *diskstore.Manifest, _ *diskstore.List) { m.Image = "\x1b[2J" },
		"no digest":             func(m *diskstore.Manifest, _ *diskstore.List) { m.ImageDigest = "sha256:../../x" },
		"no size of sectors":    func(_ *diskstore.Manifest, l *diskstore.List) { l.Size += 511 },
		"very many processors":  func(m *diskstore.Manifest, _ *diskstore.List) { m.CPUs = 1 << 20 },
		"negative processors":   func(m *diskstore.Manifest, _ *diskstore.List) { m.CPUs = -1 },
		"too much memory":       func(m *diskstore.Manifest, _ *diskstore.List) { m.Memory = 1 << 60 },
		"no variable":           func(m *diskstore.Manifest, _ *diskstore.List) { m.Env = []string{"A"} },
		"a NUL in a variable":   func(m *diskstore.Manifest, _ *diskstore.List) { m.Env = []string{"A=b\x00c"} },
		"a relative tmpfs":      func(m *diskstore.Manifest, _ *diskstore.List) { m.Tmpfs = []Tmpfs{{Path: "x"}} },
		"a key": func(m *diskstore.Manifest, _ *diskstore.List) {
			m.CA = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		},
		"words for certificate": func(m *diskstore.Manifest, _ *diskstore.List) { m.CA = "x" },
	} {
		m, l := good()
		change(m, l)
		if st, err := configOfArchive(m, l); err == nil {
			t.Errorf("%s: taken as %+v", what, st)
		}
	}
}
