package diskstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir())
	must(t, err)
	return s
}

// aDisk is a file of that size with random bytes at the offsets given, 4 KiB each.
func aDisk(t *testing.T, size int64, at ...int64) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "disk")
	must(t, err)
	must(t, f.Truncate(size))
	for _, off := range at {
		b := make([]byte, min(4096, size-off))
		_, _ = rand.Read(b)
		_, err := f.WriteAt(b, off)
		must(t, err)
	}
	must(t, f.Close())
	return f.Name()
}

func aMeta() *Meta { return &Meta{Config: &state.Stored{}} }

func take(t *testing.T, s *Store, name, disk string) *List {
	t.Helper()
	w, err := s.Begin(t.Context())
	must(t, err)
	list, err := w.Add(t.Context(), disk)
	must(t, err)
	must(t, w.Commit(name, aMeta(), list))
	must(t, w.Abort())
	return list
}

// below lists the files below a directory of the store, without the lock.
func below(t *testing.T, s *Store, dir string) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir(s.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || dir == tmpDir && path != s.path(dir)) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

func TestDisksComeBackSparse(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]string{
		"empty":      aDisk(t, 10*chunkBytes),
		"odd-end":    aDisk(t, 3*chunkBytes+5000, 0, 3*chunkBytes+100),
		"one-byte":   aDisk(t, 1, 0),
		"middle":     aDisk(t, 64*chunkBytes, 5*chunkBytes+8192, 6*chunkBytes-2048, 63*chunkBytes),
		"odd-middle": aDisk(t, 2*chunkBytes+1, chunkBytes-1),
	} {
		s := newStore(t)
		list := take(t, s, name, disk)
		want, err := os.ReadFile(disk)
		must(t, err)
		to := filepath.Join(t.TempDir(), "to")
		if _, err := s.WriteDisk(t.Context(), name, to); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), "copied")
		must(t, CopyDisk(t.Context(), copied, disk))
		for _, path := range []string{to, copied} {
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes came back, %v; want %d equal ones", name, len(got), err, len(want))
			}
			if got, most := allocated(t, path), allocated(t, disk)+64<<10; got > most {
				t.Errorf("%s: the copy takes %d bytes, want at most %d", name, got, most)
			}
		}
		if len(list.chunks) > 4 {
			t.Errorf("%s: %d chunks, holes among them", name, len(list.chunks))
		}
		if _, err := s.WriteDisk(t.Context(), name, to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over a file: %v", err)
		}
		if left := below(t, s, tmpDir); left != nil {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// TestZerosAreNotKept has a disk with zeros that were written, which take room on it.
func TestZerosAreNotKept(t *testing.T) {
	t.Parallel()
	disk := aDisk(t, 4*chunkBytes, 0)
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, 2*chunkBytes), chunkBytes)
	must(t, errors.Join(err, f.Close()))
	s := newStore(t)
	if list := take(t, s, "zeros", disk); len(list.chunks) != 1 {
		t.Errorf("%d chunks, want the one that is not zeros", len(list.chunks))
	}
}

func TestSnapshotsShareChunks(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, 8*chunkBytes, 0, 2*chunkBytes, 4*chunkBytes)
	one := take(t, s, "one", disk)
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("changed"), 2*chunkBytes+77)
	must(t, errors.Join(err, f.Close()))
	two := take(t, s, "two", disk)
	if got := len(below(t, s, chunksDir)); got != 4 {
		t.Errorf("%d chunks are kept, want the 3 of the first and 1 more", got)
	}
	if got := fmt.Sprint(Diff(one, two)); got != fmt.Sprint([]Range{{2 * chunkBytes, chunkBytes}}) {
		t.Errorf("they differ in %s", got)
	}
	must(t, s.Remove("one"))
	if got := len(below(t, s, chunksDir)); got != 3 {
		t.Errorf("%d chunks are kept, want those of the second alone", got)
	}
	if _, err := s.WriteDisk(t.Context(), "two", filepath.Join(t.TempDir(), "d")); err != nil {
		t.Error(err)
	}
	must(t, s.Remove("two"))
	if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := s.Remove("two"); !errors.Is(err, state.ErrNoSnapshot) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first := take(t, s, "a", aDisk(t, chunkBytes, 0))
	w, err := s.Begin(t.Context())
	must(t, err)
	list, err := w.Add(t.Context(), aDisk(t, chunkBytes, 0))
	must(t, err)
	for range 2 {
		if err := w.Commit("a", aMeta(), list); !errors.Is(err, state.ErrSnapshotExists) {
			t.Errorf("%v, want ErrSnapshotExists", err)
		}
	}
	must(t, w.Commit("b", aMeta(), list))
	if _, got, err := s.Load("a"); err != nil || got.digest() != first.digest() {
		t.Errorf("the first is %v, %v", got, err)
	}
	for _, bad := range []string{"", "..", "a/b", "../x", "-a", "A", "\x1b"} {
		w, err := s.Begin(t.Context())
		must(t, err)
		if err := w.Commit(bad, aMeta(), list); !errors.Is(err, state.ErrSnapshotName) {
			t.Errorf("%q: %v", bad, err)
		}
		must(t, w.Abort())
	}
}

// TestI13_KilledSnapshotsAreSwept stops after each step, as a kill does: no Abort, the lock let go by the kernel.
func TestI13_KilledSnapshotsAreSwept(t *testing.T) {
	t.Parallel()
	for what, until := range map[string]func(*testing.T, *Store, *Work){
		"begun": func(*testing.T, *Store, *Work) {},
		"staged": func(t *testing.T, _ *Store, w *Work) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(w.dir, stagedDisk), nil, 0o600))
		},
		"half a chunk": func(t *testing.T, _ *Store, w *Work) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(w.dir, "chunk-7"), []byte("half"), 0o400))
		},
		"chunks": func(t *testing.T, _ *Store, w *Work) {
			t.Helper()
			_, err := w.Add(t.Context(), aDisk(t, 4*chunkBytes, 0, chunkBytes))
			must(t, err)
		},
		"before the rename": func(t *testing.T, _ *Store, w *Work) {
			t.Helper()
			list, err := w.Add(t.Context(), aDisk(t, 4*chunkBytes, 0, chunkBytes))
			must(t, errors.Join(err, writeTo(filepath.Join(w.dir, newDir), aMeta(), list)))
		},
		"removing": func(t *testing.T, s *Store, w *Work) {
			t.Helper()
			take(t, s, "gone", aDisk(t, 4*chunkBytes, 0, chunkBytes))
			must(t, os.Rename(s.path(namesDir, "gone"), filepath.Join(w.dir, droppedDir)))
		},
	} {
		s := newStore(t)
		kept := aDisk(t, 4*chunkBytes, 0, 3*chunkBytes)
		take(t, s, "kept", kept)
		w, err := s.Begin(t.Context())
		must(t, err)
		until(t, s, w)
		must(t, s.Sweep())
		if len(below(t, s, tmpDir)) == 0 {
			t.Errorf("%s: what is in use was swept", what)
		}
		must(t, w.lock.Close())
		must(t, s.Sweep())
		if left := below(t, s, tmpDir); left != nil {
			t.Errorf("%s: left %v", what, left)
		}
		if n := len(below(t, s, chunksDir)); n != 2 {
			t.Errorf("%s: %d chunks are left, want 2", what, n)
		}
		names, err := s.Names()
		if _, e := s.WriteDisk(t.Context(), "kept", filepath.Join(t.TempDir(), "d")); err != nil || e != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v, %v", what, names, err, e)
		}
	}
}

// TestChunksInUseStay removes a snapshot while another command reads its chunks.
func TestChunksInUseStay(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	take(t, s, "a", aDisk(t, chunkBytes, 0))
	lock, err := s.use(t.Context())
	must(t, err)
	must(t, s.Remove("a"))
	if _, _, err := s.Load("a"); !errors.Is(err, state.ErrNoSnapshot) {
		t.Errorf("it is still there: %v", err)
	}
	if len(below(t, s, chunksDir)) != 1 {
		t.Error("a chunk that is in use was removed")
	}
	must(t, lock.Close())
	must(t, s.Sweep())
	if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDamagedChunksAreReportedAndKept: no damaged byte reaches a disk, and no chunk is removed while a list can't be
// read.
func TestDamagedChunksAreReportedAndKept(t *testing.T) {
	t.Parallel()
	change := func(path string, do func([]byte) []byte) {
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, os.Chmod(path, 0o600))
		must(t, os.WriteFile(path, do(b), 0o600))
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	description := func(s *Store, do func(m map[string]any)) {
		change(s.path(namesDir, "a", metaFile), func(b []byte) []byte {
			m := map[string]any{}
			must(t, json.Unmarshal(b, &m))
			do(m)
			b, err := json.Marshal(m)
			must(t, err)
			return b
		})
	}
	for what, damage := range map[string]func(s *Store){
		"a bit of a chunk":   func(s *Store) { change(below(t, s, chunksDir)[0], flip) },
		"a chunk's end":      func(s *Store) { change(below(t, s, chunksDir)[0], func(b []byte) []byte { return b[:len(b)-1] }) },
		"an empty chunk":     func(s *Store) { change(below(t, s, chunksDir)[0], func([]byte) []byte { return nil }) },
		"a chunk is missing": func(s *Store) { must(t, os.Remove(below(t, s, chunksDir)[0])) },
		"a chunk is a link": func(s *Store) {
			path := below(t, s, chunksDir)[0]
			must(t, os.Rename(path, s.path("moved")))
			must(t, os.Symlink(s.path("moved"), path))
		},
		"a longer chunk": func(s *Store) { change(below(t, s, chunksDir)[0], func(b []byte) []byte { return append(b, 'x') }) },
		"a chunk is a FIFO": func(s *Store) {
			path := below(t, s, chunksDir)[0]
			must(t, errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)))
		},
		"a later version":      func(s *Store) { description(s, func(m map[string]any) { m["version"] = metaVersion + 1 }) },
		"no sandbox described": func(s *Store) { description(s, func(m map[string]any) { delete(m, "config") }) },
		"the digest of the list": func(s *Store) {
			description(s, func(m map[string]any) { m["disk"] = "sha256:" + strings.Repeat("0", 64) })
		},
		"a bit of the list": func(s *Store) { change(s.path(namesDir, "a", listFile), flip) },
		"no list":           func(s *Store) { must(t, os.Remove(s.path(namesDir, "a", listFile))) },
		"the description":   func(s *Store) { change(s.path(namesDir, "a", metaFile), func(b []byte) []byte { return b[:len(b)/2] }) },
		"an unknown key in it": func(s *Store) {
			change(s.path(namesDir, "a", metaFile), func(b []byte) []byte { return append([]byte(`{"x":1,`), b[1:]...) })
		},
	} {
		s := newStore(t)
		disk := aDisk(t, 2*chunkBytes, 0, chunkBytes)
		take(t, s, "a", disk)
		damage(s)
		to := filepath.Join(t.TempDir(), "to")
		if _, err := s.WriteDisk(t.Context(), "a", to); !errors.Is(err, state.ErrSnapshotDamaged) || !strings.Contains(err.Error(), "msb snapshot rm a") {
			t.Errorf("%s: %v, want ErrSnapshotDamaged", what, err)
		}
		if _, err := os.Lstat(to); err == nil {
			t.Errorf("%s: a disk was left", what)
		}
		if err := s.Export(t.Context(), "a", io.Discard, func(*Meta) (*Manifest, error) { return &Manifest{}, nil }); !errors.Is(err, state.ErrSnapshotDamaged) {
			t.Errorf("%s: an archive: %v, want ErrSnapshotDamaged", what, err)
		}
		if strings.Contains(what, "chunk") { // the disk is there still: another snapshot of it makes the chunk whole
			take(t, s, "b", disk)
			for _, name := range []string{"a", "b"} {
				if _, err := s.WriteDisk(t.Context(), name, filepath.Join(t.TempDir(), "to")); err != nil {
					t.Errorf("%s: after a new snapshot, %s: %v", what, name, err)
				}
			}
			continue
		}
		_, err := s.newWork()
		must(t, errors.Join(err, s.Sweep()))
		if got := len(below(t, s, chunksDir)); got != 2 {
			t.Errorf("%s: %d chunks are left, want 2", what, got)
		}
		must(t, s.Remove("a"))
		if got := len(below(t, s, chunksDir)); got != 0 {
			t.Errorf("%s: %d chunks are left of what was removed", what, got)
		}
	}
}

// TestI12_FullDisksLeaveNoSnapshot: a snapshot ends while there is room for the sandboxes that run.
func TestI12_FullDisksLeaveNoSnapshot(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var n atomic.Int32
	s.free = func(string) (int64, error) {
		if n.Add(1) > 2 {
			return state.MinFree - 1, nil
		}
		return state.MinFree, nil
	}
	w, err := s.Begin(t.Context())
	must(t, err)
	if _, err := w.Add(t.Context(), aDisk(t, 8*chunkBytes, 0, chunkBytes, 2*chunkBytes, 3*chunkBytes)); !errors.Is(err, syscall.ENOSPC) || state.KindOf(err) != state.KindNoSpace {
		t.Errorf("%v, want ENOSPC", err)
	}
	must(t, w.Abort())
	if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCancelledSnapshotsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Begin(ctx)
	must(t, err)
	cancel()
	if _, err := w.Add(ctx, aDisk(t, 8*chunkBytes, 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	must(t, w.Abort())
	if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	lock, err := s.tryLock(unix.LOCK_EX)
	must(t, err)
	if _, err := s.Begin(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a sweep: %v", err)
	}
	must(t, lock.Close())
}

// TestI13_OnlyOwnFilesAreSwept: what is not msb's stays, and a removal that would take it along is refused.
func TestI13_OnlyOwnFilesAreSwept(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	take(t, s, "a", aDisk(t, chunkBytes, 0))
	work, err := s.newWork()
	must(t, err)
	files := []string{filepath.Join(work, "mine"), s.path(tmpDir, "mine"), s.path(chunksDir, "mine"), s.path(namesDir, "a", "mine")}
	must(t, os.Mkdir(s.path(chunksDir, "ff"), 0o700))
	files = append(files, s.path(chunksDir, "ff", "mine"))
	for _, f := range files {
		must(t, os.WriteFile(f, nil, 0o600))
	}
	must(t, s.Sweep())
	if err := s.Remove("a"); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("%v", err)
	}
	for _, f := range files {
		if _, err := os.Lstat(f); err != nil {
			t.Error(err)
		}
	}
}

func TestListsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	for text, ok := range map[string]bool{
		"size 1\n": true,
		"size 1048577\n0 " + sum + "\n1 " + sum + "\n": true,
		"":                              false,
		"size 0\n":                      false,
		"size -1\n":                     false,
		"size +1\n":                     false,
		"size 01\n":                     false,
		"size 1":                        false,
		"size 99999999999999999999\n":   false,
		"size 17592186044417\n":         false,
		"size 1\n1 " + sum + "\n":       false, // behind the end
		"size 1048576\n1 " + sum + "\n": false, // likewise, by nothing
		"size 3000000\n1 " + sum + "\n1 " + sum + "\n":    false,
		"size 3000000\n1 " + sum + "\n0 " + sum + "\n":    false,
		"size 3000000\n-1 " + sum + "\n":                  false,
		"size 3000000\n0 " + strings.ToUpper(sum) + "\n":  false,
		"size 3000000\n0 " + sum[1:] + "\n":               false,
		"size 3000000\n0 " + sum + "0\n":                  false,
		"size 3000000\n0 " + sum + " \n":                  false,
		"size 3000000\n0 ../../" + sum[6:] + "\n":         false,
		"size 3000000\n0 " + sum:                          false,
		"size 3000000\n\n":                                false,
		"size 3000000\n9223372036854775807 " + sum + "\n": false,
	} {
		l, err := parseList([]byte(text))
		if (err == nil) != ok || err == nil && string(l.encode()) != text {
			t.Errorf("%q: %v, %v", text, l, err)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add([]byte("size 3000000\n0 " + strings.Repeat("ab", 32) + "\n2 " + strings.Repeat("0f", 32) + "\n"))
	f.Add([]byte("size 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseList(b)
		if err != nil {
			return
		}
		if !bytes.Equal(l.encode(), b) || l.Bytes() < 0 || l.Bytes() > l.Size {
			t.Errorf("%q is read as %v", b, l)
		}
	})
}

func TestDiffNamesEveryDifference(t *testing.T) {
	t.Parallel()
	list := func(size int64, at ...int64) *List {
		l := &List{Size: size}
		for _, a := range at {
			l.chunks = append(l.chunks, chunkRef{at: a % 100, sum: [32]byte{1, byte(a / 100)}})
		}
		return l
	}
	const mib = chunkBytes
	for what, tc := range map[string]struct {
		a, b *List
		want []Range
	}{
		"equal":           {list(9*mib, 1, 2), list(9*mib, 1, 2), nil},
		"one changed":     {list(9*mib, 1, 2), list(9*mib, 1, 102), []Range{{2 * mib, mib}}},
		"a run":           {list(9*mib, 1, 2, 3), list(9*mib, 101, 102), []Range{{1 * mib, 3 * mib}}},
		"two runs":        {list(9*mib, 1, 5), list(9 * mib), []Range{{mib, mib}, {5 * mib, mib}}},
		"only in one":     {list(9 * mib), list(9*mib, 0), []Range{{0, mib}}},
		"the odd end":     {list(mib+5, 1), list(mib+5, 101), []Range{{mib, 5}}},
		"longer":          {list(2*mib, 1), list(4*mib, 1, 3), []Range{{2 * mib, 2 * mib}}},
		"longer by bytes": {list(mib+5, 1), list(mib+9, 101), []Range{{mib, 9}}},
	} {
		for _, got := range [][]Range{Diff(tc.a, tc.b), Diff(tc.b, tc.a)} {
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%s: %v, want %v", what, got, tc.want)
			}
		}
	}
}

// TestI11_CopiesFillNothing copies a disk while there is room for a part of it.
func TestI11_CopiesFillNothing(t *testing.T) {
	t.Parallel()
	var places []int64
	for at := range int64(16) {
		places = append(places, at*chunkBytes)
	}
	from, err := os.Open(aDisk(t, 16*chunkBytes, places...))
	must(t, err)
	defer from.Close()
	for _, room := range []int64{8 << 20, 1 << 30} {
		to, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		must(t, err)
		defer to.Close()
		free := func(string) (int64, error) {
			at, err := to.Seek(0, io.SeekCurrent)
			return state.MinFree + room - at, err
		}
		if err := copySparse(t.Context(), to, from, free); errors.Is(err, syscall.ENOSPC) != (room < 1<<30) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

// digest names what the disk holds.
func (l *List) digest() string { return digestOf(l.encode()) }
