package image

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/image/ext4disk"
)

func TestResolveLayoutInEveryCompression(t *testing.T) {
	t.Parallel()
	for name, compress := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped, "zstd": zstded, "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixture{
				layers:   [][]byte{layerOf(t, "etc/", "", "etc/os-release", "lower", "gone", "x"), layerOf(t, "etc/os-release", "upper", ".wh.gone", "")},
				compress: compress,
				config: map[string]any{"Env": []string{"A=b", "LD_PRELOAD=/x.so"}, "Entrypoint": []string{"/init"}, "Cmd": []string{"-v"},
					"WorkingDir": "srv/", "User": "app:1000", "StopSignal": "SIGTERM"},
			}
			s := openStore(t, StoreOptions{})
			ref := "oci:" + f.layout(t)
			img := mustResolve(t, s, ref, Options{})
			fsck(t, img.DiskPath)
			if got := debugfs(t, img.DiskPath, "cat etc/os-release"); got != "upper" {
				t.Errorf("the file holds %q", got)
			}
			if got := debugfs(t, img.DiskPath, "ls /"); strings.Contains(got, "gone") {
				t.Errorf("a whited-out file is there: %s", got)
			}
			c := img.Config
			if c.WorkingDir != "/srv" || c.User != "app:1000" || c.StopSignal != "SIGTERM" || !slices.Equal(c.Entrypoint, []string{"/init"}) ||
				!slices.Equal(c.Cmd, []string{"-v"}) || !slices.Equal(c.Env, []string{"A=b", "LD_PRELOAD=/x.so"}) {
				t.Errorf("configuration %+v", c)
			}
			if img.Cached || img.Ref != ref || img.Platform != DefaultPlatform() || img.SizeBytes == 0 {
				t.Errorf("image %+v", img)
			}
			if st, err := os.Stat(img.DiskPath); err != nil || st.Mode().Perm() != 0o400 || st.Size() != ext4disk.Padded(img.SizeBytes) {
				t.Errorf("disk %v %v", st, err)
			}
			again := mustResolve(t, s, ref, Options{})
			if !again.Cached || again.DiskPath != img.DiskPath || again.Config.WorkingDir != "/srv" {
				t.Errorf("the second time: %+v", again)
			}
		})
	}
}

func TestDisksAreReproducible(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "b", "1", "a", "2", "d/e", "3")}}
	ref := "oci:" + f.layout(t)
	var disks [2][]byte
	for i := range disks {
		b, err := os.ReadFile(mustResolve(t, openStore(t, StoreOptions{}), ref, Options{}).DiskPath)
		if err != nil {
			t.Fatal(err)
		}
		disks[i] = b
	}
	if !bytes.Equal(disks[0], disks[1]) {
		t.Error("two disks of one image differ")
	}
}

func TestResolveByDigestAndTag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := fixture{layers: [][]byte{layerOf(t, "n", "one")}}.write(t, dir)
	two := fixture{layers: [][]byte{layerOf(t, "n", "two")}}.write(t, dir)
	one["annotations"] = map[string]any{refNameAnnotation: "v1"}
	two["annotations"] = map[string]any{refNameAnnotation: "v2"}
	writeIndex(t, dir, one, two)
	s := openStore(t, StoreOptions{})
	for ref, want := range map[string]string{
		"oci:" + dir + ":v1": "one", "oci:" + dir + ":v2": "two",
		"oci:" + dir + "@" + one["digest"].(string): "one",
	} {
		if got := debugfs(t, mustResolve(t, s, ref, Options{}).DiskPath, "cat n"); got != want {
			t.Errorf("%s holds %q, want %q", ref, got, want)
		}
	}
	if _, err := s.Resolve(t.Context(), "oci:"+dir, Options{}); !errors.Is(err, ErrReference) || !strings.Contains(err.Error(), "v2") {
		t.Errorf("no tag: %v, want ErrReference that names the tags", err)
	}
	if _, err := s.Resolve(t.Context(), "oci:"+dir+":v3", Options{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown tag: %v, want ErrNotFound", err)
	}
}

func TestI12_AnotherArchitectureIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	single := fixture{arch: "s390x", layers: [][]byte{layerOf(t, "a", "1")}}.layout(t)
	dir := t.TempDir()
	m := fixture{arch: "riscv64", layers: [][]byte{layerOf(t, "a", "1")}}.write(t, dir)
	m["platform"] = map[string]any{"os": "linux", "architecture": "riscv64"}
	att := map[string]any{"mediaType": m["mediaType"], "digest": m["digest"], "size": m["size"], "platform": map[string]any{"os": "unknown", "architecture": "unknown"}}
	writeIndex(t, dir, m, att)
	for ref, has := range map[string]string{"oci:" + single: "linux/s390x", "oci:" + dir: "linux/riscv64"} {
		_, err := s.Resolve(t.Context(), ref, Options{})
		if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), has) || !strings.Contains(err.Error(), DefaultPlatform().String()) ||
			strings.Contains(err.Error(), "unknown/") {
			t.Errorf("%s: %v, want ErrPlatform that names %s", ref, err, has)
		}
	}
	assertEmpty(t, s)
}

func TestBuiltin(t *testing.T) {
	t.Parallel()
	content := gzipped(t, layerOf(t, "bin/sh", "#!"))
	opened := 0
	s := openStore(t, StoreOptions{Builtin: func() (Builtin, error) {
		return Builtin{
			Digest: sha256Of(content).String(), Config: Config{Cmd: []string{"/bin/sh"}},
			Open: func() (io.ReadCloser, error) { opened++; return io.NopCloser(bytes.NewReader(content)), nil },
		}, nil
	}})
	for range 2 {
		img := mustResolve(t, s, "builtin", Options{Pull: PullNever})
		if debugfs(t, img.DiskPath, "cat bin/sh") != "#!" || img.Config.WorkingDir != "/" {
			t.Errorf("image %+v", img)
		}
	}
	if opened != 1 {
		t.Errorf("opened %d times, want once", opened)
	}
	if _, err := openStore(t, StoreOptions{}).Resolve(t.Context(), "builtin", Options{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("without one: %v, want ErrNotFound", err)
	}
}

func TestListRemovePrune(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	one := "oci:" + fixture{layers: [][]byte{layerOf(t, "a", "1")}}.layout(t)
	two := "oci:" + fixture{layers: [][]byte{layerOf(t, "a", "2")}}.layout(t)
	img := mustResolve(t, s, one, Options{})
	mustResolve(t, s, two, Options{})
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Fatalf("list %v %v", list, err)
	}
	if err := s.Remove(one); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(img.DiskPath); !os.IsNotExist(err) {
		t.Errorf("the disk is still there: %v", err)
	}
	if err := s.Remove(one); !errors.Is(err, ErrNotCached) {
		t.Errorf("again: %v, want ErrNotCached", err)
	}
	if err := s.Remove("../../etc"); !errors.Is(err, ErrNotCached) {
		t.Errorf("a path: %v, want ErrNotCached", err)
	}
	if freed, err := s.Prune(); err != nil || freed != 0 {
		t.Errorf("prune of a disk in use: %d %v", freed, err)
	}
	refs, err := filepath.Glob(filepath.Join(s.dir, refsDir, "*"))
	if err != nil || len(refs) != 1 {
		t.Fatalf("references %v %v", refs, err)
	}
	if err := os.Remove(refs[0]); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Prune(mustDigest(t, s)); err != nil || freed != 0 {
		t.Errorf("prune of a disk that is needed: %d %v", freed, err)
	}
	if freed, err := s.Prune(); err != nil || freed <= 0 {
		t.Errorf("prune: %d %v", freed, err)
	}
	assertEmpty(t, s)
}

// mustDigest is that of the one image in the cache.
func mustDigest(t *testing.T, s *Store) string {
	t.Helper()
	all, err := s.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("list %v %v", all, err)
	}
	return all[0].Digest
}

func TestNeededDisksOutliveTheirNames(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	ref := "oci:" + fixture{layers: [][]byte{layerOf(t, "a", "1")}}.layout(t)
	img := mustResolve(t, s, ref, Options{})
	if err := s.Remove(ref, img.Digest); err != nil {
		t.Fatal(err)
	}
	if got := mustDigest(t, s); got != img.Digest {
		t.Errorf("the cache holds %s, want %s", got, img.Digest)
	}
	if err := s.Remove(img.Digest); err != nil {
		t.Fatal(err)
	}
	assertEmpty(t, s)
}

func TestI13_DamagedDisksAreMadeAgain(t *testing.T) {
	t.Parallel()
	ref := "oci:" + fixture{layers: [][]byte{layerOf(t, "a", "1")}}.layout(t)
	for name, damage := range map[string]func(t *testing.T, img *Image){
		"cut": func(t *testing.T, img *Image) { mustTruncate(t, img.DiskPath, img.SizeBytes/2) },
		"overwritten": func(t *testing.T, img *Image) {
			mustTruncate(t, img.DiskPath, 0)
			mustTruncate(t, img.DiskPath, img.SizeBytes)
		},
		"disk gone":   func(t *testing.T, img *Image) { mustRemove(t, img.DiskPath) },
		"marker gone": func(t *testing.T, img *Image) { mustRemove(t, filepath.Join(filepath.Dir(img.DiskPath), metaFile)) },
		"marker cut": func(t *testing.T, img *Image) {
			mustTruncate(t, filepath.Join(filepath.Dir(img.DiskPath), metaFile), 10)
		},
		"directory empty": func(t *testing.T, img *Image) {
			mustRemove(t, img.DiskPath)
			mustRemove(t, filepath.Join(filepath.Dir(img.DiskPath), metaFile))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, StoreOptions{})
			img := mustResolve(t, s, ref, Options{})
			damage(t, img)
			again := mustResolve(t, s, ref, Options{})
			if again.Cached || debugfs(t, again.DiskPath, "cat a") != "1" {
				t.Errorf("the damaged disk was used: %+v", again)
			}
			fsck(t, again.DiskPath)
		})
	}
}

func mustTruncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func mustRemove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestI13_LeftoversAmongOthersAreSwept has directories of pulls that were killed among those of pulls that run, and of
// what is not the store's.
func TestI13_LeftoversAmongOthersAreSwept(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	tmp := filepath.Join(s.dir, tmpDir)
	foreign := []string{filepath.Join(tmp, "notes"), filepath.Join(tmp, strings.Repeat("B", 26)+lockSuffix), filepath.Join(tmp, strings.Repeat("C", 26)+lockSuffix)}
	mustWrite(t, foreign[0], nil)
	if err := errors.Join(os.Symlink("notes", foreign[1]), os.Mkdir(foreign[2], 0o700)); err != nil {
		t.Fatal(err)
	}
	var live, left []string
	for range 6 {
		st, err := s.newStaging()
		if err != nil {
			t.Fatal(err)
		}
		defer st.discard()
		live = append(live, st.dir)
		dead, err := s.newStaging()
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(dead.dir, diskFile), nil)
		if err := dead.lock.f.Close(); err != nil { // as a kill does
			t.Fatal(err)
		}
		left = append(left, dead.dir)
	}
	if _, err := Open(s.dir, StoreOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(foreign, live...) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("swept: %v", err)
		}
	}
	for _, path := range append(left, left[0]+lockSuffix) {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}
