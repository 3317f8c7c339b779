package image

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Every image here is refused, the error names what it is about, and the store is
// as empty as before.
func TestI12_HostileImagesLeaveNothing(t *testing.T) {
	t.Parallel()
	good := layerOf(t, "a", "1")
	other := sha256Of([]byte("other")).String()
	layers := func(m map[string]any) []any { return m["layers"].([]any) }
	first := func(m map[string]any) map[string]any { return layers(m)[0].(map[string]any) }
	configOf := func(m map[string]any) map[string]any { return m["config"].(map[string]any) }
	for name, tc := range map[string]struct {
		f      fixture
		is     error
		says   string
		limits sizeLimits
	}{
		"entry leaves the root":   {f: fixture{layers: [][]byte{good, layerOf(t, "../../etc/cron.d/evil", "x")}}, is: ErrHostile, says: `"../../etc/cron.d/evil"`},
		"diffID lies":             {f: fixture{layers: [][]byte{good}, diffIDs: []string{other}}, is: ErrDigest, says: other},
		"diffIDs are missing":     {f: fixture{layers: [][]byte{good}, diffIDs: []string{other}, mutate: func(m map[string]any) { m["layers"] = append(layers(m), first(m)) }}, is: ErrConfig, says: "2 layers"},
		"layer is shorter":        {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { first(m)["digest"] = other }}, is: ErrNotFound, says: "blobs"},
		"layer size lies":         {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { first(m)["size"] = 10 }}, is: ErrDigest, says: "longer"},
		"layer size is negative":  {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { first(m)["size"] = -1 }}, is: ErrLimit, says: "layer 1"},
		"layer size overflows":    {f: fixture{layers: [][]byte{good, good}, mutate: func(m map[string]any) { first(m)["size"] = int64(1) << 62 }}, is: ErrLimit, says: "layer 1"},
		"config size lies":        {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { configOf(m)["size"] = 1 << 40 }}, is: ErrLimit, says: "configuration"},
		"config is no image":      {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { configOf(m)["mediaType"] = "application/vnd.cncf.helm.config.v1+json" }}, is: ErrConfig, says: "helm"},
		"foreign layer":           {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { first(m)["urls"] = []string{"http://169.254.169.254/"} }}, is: ErrConfig, says: "layer 1"},
		"digest as a path":        {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { first(m)["digest"] = "sha256:../../../etc/passwd" }}, is: ErrConfig, says: "manifest"},
		"too many layers":         {f: fixture{layers: [][]byte{good}, mutate: func(m map[string]any) { m["layers"] = repeatAny(first(m), 10_000) }}, is: ErrLimit, says: "10000 layers"},
		"not a tar":               {f: fixture{layers: [][]byte{bytes.Repeat([]byte("<html>"), 500)}}, is: ErrHostile, says: "tar"},
		"gzip is broken":          {f: fixture{layers: [][]byte{good}, compress: func(t testing.TB, b []byte) []byte { z := gzipped(t, b); z[len(z)/2] ^= 0xff; return z }}, is: ErrHostile, says: "layer 1 of 1"},
		"gzip is cut":             {f: fixture{layers: [][]byte{good}, compress: func(t testing.TB, b []byte) []byte { z := gzipped(t, b); return z[:len(z)-9] }}, is: ErrHostile, says: "layer 1 of 1"},
		"zstd is broken":          {f: fixture{layers: [][]byte{good}, compress: func(t testing.TB, b []byte) []byte { z := zstded(t, b); z[len(z)/2] ^= 0xff; return z }}, is: ErrHostile, says: "layer 1 of 1"},
		"bomb after the tar":      {f: fixture{layers: [][]byte{good}, compress: bomb}, is: ErrLimit, limits: sizeLimits{totalBytes: 1 << 20, entries: 10}, says: "decompress"},
		"bomb as a file":          {f: fixture{layers: [][]byte{layerOf(t, "evil", strings.Repeat("\x00", 2<<20))}}, is: ErrLimit, limits: sizeLimits{totalBytes: 1 << 20}, says: `"evil"`},
		"file over the limit":     {f: fixture{layers: [][]byte{layerOf(t, "evil", strings.Repeat("\x00", 2<<20))}}, is: ErrLimit, limits: sizeLimits{fileBytes: 1 << 20}, says: `"evil"`},
		"entries over the limit":  {f: fixture{layers: [][]byte{layerOf(t, "a", "", "b", "", "evil", "")}}, is: ErrLimit, limits: sizeLimits{entries: 2}, says: `"evil"`},
		"NUL in the environment":  {f: fixture{layers: [][]byte{good}, config: map[string]any{"Env": []string{"A=b\x00c"}}}, is: ErrConfig, says: "Env"},
		"name with a newline":     {f: fixture{layers: [][]byte{good}, config: map[string]any{"Env": []string{"A\nB=c"}}}, is: ErrConfig, says: "Env"},
		"variable without a name": {f: fixture{layers: [][]byte{good}, config: map[string]any{"Env": []string{"=c"}}}, is: ErrConfig, says: "Env"},
		"working directory above": {f: fixture{layers: [][]byte{good}, config: map[string]any{"WorkingDir": "../../etc"}}, is: ErrConfig, says: "WorkingDir"},
		"user is a path":          {f: fixture{layers: [][]byte{good}, config: map[string]any{"User": "../root"}}, is: ErrConfig, says: "User"},
		"user with a newline":     {f: fixture{layers: [][]byte{good}, config: map[string]any{"User": "a\nroot:x:0"}}, is: ErrConfig, says: "User"},
		"stop signal":             {f: fixture{layers: [][]byte{good}, config: map[string]any{"StopSignal": "65"}}, is: ErrConfig, says: "StopSignal"},
		"command of 1 MiB":        {f: fixture{layers: [][]byte{good}, config: map[string]any{"Cmd": []string{strings.Repeat("x", 1<<20)}}}, is: ErrConfig, says: "Cmd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, StoreOptions{limits: tc.limits})
			_, err := s.Resolve(t.Context(), "oci:"+tc.f.layout(t), Options{})
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v\nwant %v that says %q", err, tc.is, tc.says)
			}
			assertEmpty(t, s)
		})
	}
}

func repeatAny(v any, n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// bomb appends 64 MiB of zeros to the tar, some 60 KiB compressed.
func bomb(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	chunk := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(chunk)
	}
	_ = w.Close()
	return out.Bytes()
}

func TestI12_FlippedBytesFailTheDigest(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "a", strings.Repeat("abc", 1000))}, afterBlob: func(dir string) {
		blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
		for _, b := range blobs {
			content, _ := os.ReadFile(b)
			if bytes.HasPrefix(content, gzipMagic) {
				content[len(content)-1] ^= 1
				_ = os.WriteFile(b, content, 0o600)
			}
		}
	}}
	s := openStore(t, StoreOptions{})
	if _, err := s.Resolve(t.Context(), "oci:"+f.layout(t), Options{}); !errors.Is(err, ErrDigest) {
		t.Errorf("got %v, want ErrDigest: the bytes are not the image's", err)
	}
	assertEmpty(t, s)
}

// TestI12_OtherManifestsFailTheDigest has a manifest that is good, under the digest of another: the one that the layout's
// index names, the one that the reference names, and the one that an index in the layout names.
func TestI12_OtherManifestsFailTheDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := fixture{layers: [][]byte{layerOf(t, "n", "one")}}.write(t, dir)
	other := fixture{layers: [][]byte{layerOf(t, "n", "another")}}.write(t, dir)
	const media = "application/vnd.oci.image.index.v1+json"
	index := putBlob(t, dir, media, mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": media, "manifests": []any{m}}))
	id := m["digest"].(string)
	good, err := os.ReadFile(blobPath(dir, id))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := os.ReadFile(blobPath(dir, other["digest"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		entry map[string]any
		ref   string
	}{{m, "oci:" + dir}, {m, "oci:" + dir + "@" + id}, {index, "oci:" + dir}} {
		writeIndex(t, dir, tc.entry)
		for want, content := range map[error][]byte{nil: good, ErrDigest: bad} {
			mustWrite(t, blobPath(dir, id), content)
			s := openStore(t, StoreOptions{})
			if _, err := s.Resolve(t.Context(), tc.ref, Options{}); !errors.Is(err, want) {
				t.Errorf("%s by %v: %v, want %v", tc.ref, tc.entry["mediaType"], err, want)
			}
		}
	}
}

func TestI14_LayoutsDoNotLeadOutside(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	mustWrite(t, secret, []byte(`{"schemaVersion":2}`))
	link := t.TempDir()
	if err := os.Symlink(secret, filepath.Join(link, "index.json")); err != nil {
		t.Fatal(err)
	}
	fifo := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(fifo, "index.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := t.TempDir()
	mustWrite(t, filepath.Join(big, "index.json"), make([]byte, maxManifestBytes+1))
	s := openStore(t, StoreOptions{})
	for _, dir := range []string{link, fifo, big, t.TempDir(), filepath.Join(link, "missing")} {
		if _, err := s.Resolve(t.Context(), "oci:"+dir, Options{}); err == nil {
			t.Errorf("%s was taken", dir)
		}
	}
	assertEmpty(t, s)
}

func TestI12_EndlessIndexesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := fixture{layers: [][]byte{layerOf(t, "a", "1")}}.write(t, dir)
	for range maxIndexDepth + 1 {
		d = putBlob(t, dir, "application/vnd.oci.image.index.v1+json", mustJSON(t, map[string]any{"schemaVersion": 2, "manifests": []any{d}}))
	}
	writeIndex(t, dir, d)
	s := openStore(t, StoreOptions{})
	if _, err := s.Resolve(t.Context(), "oci:"+dir, Options{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "nested") {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

func TestI12_BadReferencesAreNamed(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	for ref, says := range map[string]string{
		"": "empty", "a b": "a b", "UPPER": "UPPER", "docker://alpine": `write "alpine"`, "https://x.test/y": `write "x.test/y"`,
		"a\nb": "control", "oci:": "no path", "dir:": "no path", "docker-archive:": "no path", "oci:/x@sha256:12": "digest",
		strings.Repeat("x", maxReferenceBytes+1): "longer", "x.test/a@sha256:12": "a@sha256:12", "--help": "flag",
	} {
		if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, ErrReference) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: got %v, want ErrReference that says %q", ref, err, says)
		}
	}
	if _, err := s.Resolve(t.Context(), "a.test/b", Options{Pull: "sometimes"}); !errors.Is(err, ErrReference) {
		t.Errorf("pull policy: %v", err)
	}
	assertEmpty(t, s)
}

// A layer whose reading fails half way, for a reason of the source.
func TestI12_SourceErrorsLeaveNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk of the source broke")
	s := openStore(t, StoreOptions{Builtin: func() (Builtin, error) {
		return Builtin{Digest: sha256Of(nil).String(), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(layerOf(t, "a", strings.Repeat("x", 5000))[:3000]), failing{broken})), nil
		}}, nil
	}})
	if _, err := s.Resolve(t.Context(), "builtin", Options{}); !errors.Is(err, broken) {
		t.Errorf("got %v, want the source's error", err)
	}
	assertEmpty(t, s)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
