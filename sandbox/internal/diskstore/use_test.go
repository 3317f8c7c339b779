package diskstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// described is what Export writes of a snapshot in tests.
func described(*Meta) (*Manifest, error) { return &Manifest{}, nil }

// TestI13_MemoryIsOfTheSnapshotRead removes a snapshot, and makes another one of its name, after its disk was written: the
// memory is of neither then.
func TestI13_MemoryIsOfTheSnapshotRead(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	withMemory := func() {
		w, err := s.Begin(t.Context())
		must(t, err)
		list, err := w.Add(t.Context(), aDisk(t, chunkBytes, 0))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(w.dir, memoryFile), []byte("memory"), 0o600))
		must(t, w.Commit("a", &Meta{Created: time.Now(), Config: &state.Stored{}}, list))
		must(t, w.Abort())
	}
	withMemory()
	dir := t.TempDir()
	m, err := s.WriteDisk(t.Context(), "a", filepath.Join(dir, "disk"))
	must(t, err)
	to := filepath.Join(dir, "memory")
	must(t, s.PlaceMemory(t.Context(), "a", m, to)) // the twin: nobody removes it
	must(t, os.Remove(to))
	must(t, s.Remove("a"))
	for _, next := range []func(){withMemory, func() {}} {
		if err := s.PlaceMemory(t.Context(), "a", m, to); !errors.Is(err, state.ErrNoSnapshot) {
			t.Errorf("removed meanwhile: %v, want %v", err, state.ErrNoSnapshot)
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a memory was placed: %v", err)
		}
		next() // another of its name
	}
}

// TestI13_ReadersKeepTheirChunks removes a snapshot while a disk or an archive is made of it: what is read stays until then.
func TestI13_ReadersKeepTheirChunks(t *testing.T) {
	t.Parallel()
	const chunks = 16 // more than are read at once
	var places []int64
	for at := range int64(chunks) {
		places = append(places, at*chunkBytes)
	}
	for what, read := range map[string]func(s *Store, remove func()) error{
		"a disk": func(s *Store, remove func()) error {
			s.free = func(string) (int64, error) { remove(); return state.MinFree, nil }
			_, err := s.WriteDisk(t.Context(), "a", filepath.Join(t.TempDir(), "to"))
			return err
		},
		"an archive": func(s *Store, remove func()) error {
			return s.Export(t.Context(), "a", io.Discard, func(*Meta) (*Manifest, error) { remove(); return &Manifest{}, nil })
		},
	} {
		s := newStore(t)
		take(t, s, "a", aDisk(t, chunks*chunkBytes, places...))
		remove := sync.OnceFunc(func() {
			if err := s.Remove("a"); err != nil {
				t.Errorf("%s: removing meanwhile: %v", what, err)
			}
		})
		if err := read(s, remove); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		must(t, s.Sweep())
		if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) > 0 {
			t.Errorf("%s: left: %v", what, left)
		}
	}
}

// waiting calls on when somebody begins to wait for the context's end.
type waiting struct {
	context.Context
	on func()
}

// Done implements context.Context.
func (w waiting) Done() <-chan struct{} { w.on(); return w.Context.Done() }

// TestSnapshotsWaitForSweeps: who needs chunks begins once nobody removes any.
func TestSnapshotsWaitForSweeps(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lock, err := s.tryLock(unix.LOCK_EX)
	must(t, err)
	var waited bool
	w, err := s.Begin(waiting{t.Context(), func() { waited = true; _ = lock.Close() }})
	if err != nil || !waited {
		t.Fatalf("it waited %v: %v", waited, err)
	}
	must(t, w.Abort())
}

// TestI13_SnapshotsAreWholeBeforeTheirName: what has its name is on the disk, so that a power cut leaves nothing half-done.
func TestI13_SnapshotsAreWholeBeforeTheirName(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	w, err := s.Begin(t.Context())
	must(t, err)
	list, err := w.Add(t.Context(), aDisk(t, 2*chunkBytes, 0, chunkBytes))
	must(t, err)
	full := errors.New("the disk is full")
	s.sync = func(dir string) error {
		names, err := s.Names()
		if dir != s.dir || err != nil || len(names) > 0 {
			t.Errorf("%s is written back, with the snapshots %q, %v", dir, names, err)
		}
		for _, name := range []string{metaFile, listFile} {
			if info, err := os.Stat(filepath.Join(w.dir, newDir, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s is not written: %v", name, err)
			}
		}
		if n := len(below(t, s, chunksDir)); n != 2 {
			t.Errorf("%d chunks are written, want 2", n)
		}
		return full
	}
	if err := w.Commit("a", aMeta(), list); !errors.Is(err, full) {
		t.Errorf("%v, want what writing back met", err)
	}
	if names, err := s.Names(); err != nil || len(names) > 0 {
		t.Errorf("a snapshot that may not be on the disk: %q, %v", names, err)
	}
	s.sync = syncAll
	must(t, w.Commit("a", aMeta(), list))
}

// TestI8_SnapshotsAreTheirUsersAlone: a disk may hold anything, and the user's umask lets others read.
func TestI8_SnapshotsAreTheirUsersAlone(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, 2*chunkBytes, 0, chunkBytes)
	take(t, s, "a", disk)
	w, err := s.Begin(t.Context())
	must(t, err)
	other := aDisk(t, chunkBytes, 0)
	data, err := os.ReadFile(other)
	must(t, err)
	must(t, s.writeChunk(filepath.Join(w.dir, "chunk-0"), &chunkRef{}, data, nil))
	made := []string{filepath.Join(t.TempDir(), "written"), filepath.Join(t.TempDir(), "copied")}
	_, err = s.WriteDisk(t.Context(), "a", made[0])
	must(t, errors.Join(err, CopyDisk(t.Context(), made[1], disk)))
	for _, path := range made {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	must(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == s.dir {
			return err
		}
		info, err := d.Info()
		want := fs.FileMode(0o600)
		switch {
		case d.IsDir():
			want = fs.ModeDir | 0o700
		case strings.HasPrefix(path, s.path(chunksDir)) || strings.HasPrefix(d.Name(), "chunk-"):
			want = 0o400 // they are never changed
		}
		if err == nil && info.Mode() != want {
			t.Errorf("%s: %v, want %v", path, info.Mode(), want)
		}
		return err
	}))
	must(t, w.Abort())
}

// TestI14_NamesOfSnapshotsAreNames: none leads out of the store, and no link is followed.
func TestI14_NamesOfSnapshotsAreNames(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	take(t, s, "a", aDisk(t, chunkBytes, 0))
	outside := filepath.Join(s.dir, "outside")
	must(t, os.CopyFS(outside, os.DirFS(s.path(namesDir, "a"))))
	for _, name := range []string{"../outside", "..", ".", "", "a/../a", "/a"} {
		_, _, err := s.Load(name)
		_, errDisk := s.WriteDisk(t.Context(), name, filepath.Join(t.TempDir(), "to"))
		for what, err := range map[string]error{
			"load": err, "disk": errDisk, "remove": s.Remove(name), "export": s.Export(t.Context(), name, io.Discard, described),
		} {
			if !errors.Is(err, state.ErrSnapshotName) {
				t.Errorf("%s %q: %v, want ErrSnapshotName", what, name, err)
			}
		}
	}
	must(t, os.Symlink(outside, s.path(namesDir, "link")))
	if _, _, err := s.Load("link"); !errors.Is(err, state.ErrSnapshotDamaged) {
		t.Errorf("a link: %v, want ErrSnapshotDamaged", err)
	}
	must(t, errors.Join(os.WriteFile(s.path(namesDir, "file"), nil, 0o600), os.Mkdir(s.path(namesDir, "Bad"), 0o700)))
	if names, err := s.Names(); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("the snapshots are %q, %v", names, err)
	}
	if _, err := os.Stat(filepath.Join(outside, metaFile)); err != nil {
		t.Error(err)
	}
	for _, sub := range []string{namesDir, chunksDir, tmpDir} {
		dir := t.TempDir()
		must(t, os.Symlink(s.path(sub), filepath.Join(dir, sub)))
		if _, err := Open(dir); !errors.Is(err, state.ErrHome) {
			t.Errorf("%s is a link: %v, want ErrHome", sub, err)
		}
	}
}

// TestI13_ChunksAreDroppedBeforeTheirTrace: a sweep that stops between leaves what tells the next one that there is something to do.
func TestI13_ChunksAreDroppedBeforeTheirTrace(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	w, err := s.Begin(t.Context())
	must(t, err)
	_, err = w.Add(t.Context(), aDisk(t, chunkBytes, 0))
	must(t, errors.Join(err, w.lock.Close())) // a kill
	must(t, os.Rename(s.path(chunksDir), s.path("aside")))
	if err := s.Sweep(); err == nil {
		t.Error("a sweep without chunks")
	}
	if len(below(t, s, tmpDir)) == 0 {
		t.Error("nothing tells of the chunks that are left")
	}
	must(t, os.Rename(s.path("aside"), s.path(chunksDir)))
	must(t, s.Sweep())
	if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCancelledCopiesLeaveNothing ends each way of reading a snapshot or a disk before it began.
func TestCancelledCopiesLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, 2*chunkBytes, 0, chunkBytes)
	take(t, s, "a", disk)
	archive := exported(t, s, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to := filepath.Join(t.TempDir(), "to")
	if _, err := s.WriteDisk(ctx, "a", to); !errors.Is(err, context.Canceled) {
		t.Errorf("a disk: %v", err)
	}
	if err := s.Export(ctx, "a", io.Discard, described); !errors.Is(err, context.Canceled) {
		t.Errorf("an archive: %v", err)
	}
	into := newStore(t)
	w, err := into.Begin(t.Context())
	must(t, err)
	if _, _, err := w.Import(ctx, bytes.NewReader(archive)); !errors.Is(err, context.Canceled) || errors.Is(err, state.ErrSnapshotArchive) {
		t.Errorf("an import: %v", err)
	}
	must(t, w.Abort())
	if left := append(below(t, into, chunksDir), below(t, into, tmpDir)...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Lstat(to); err == nil {
		t.Error("a disk was left")
	}
	from, err := os.Open(disk)
	must(t, err)
	defer from.Close()
	half, err := os.Create(filepath.Join(t.TempDir(), "half"))
	must(t, err)
	defer half.Close()
	if err := copySparse(ctx, half, from, state.Free); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy: %v", err)
	}
	if err := CopyDisk(ctx, to, disk); err == nil {
		return // it shares blocks, which takes no time
	}
	if _, err := os.Lstat(to); err == nil {
		t.Error("a copy was left")
	}
}

// TestStagesAreAsAnnounced, and asking leaves nothing, which a second request would meet.
func TestStagesAreAsAnnounced(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, chunkBytes, 0)
	w, err := s.Begin(t.Context())
	must(t, err)
	for range 2 {
		can, err := w.CanStage(disk)
		must(t, err)
		path, err := w.Stage(disk)
		if err != nil || can != (path != "") {
			t.Fatalf("it can %v: %q, %v", can, path, err)
		}
		if path != "" {
			must(t, os.Remove(path))
		}
	}
	if _, err := w.CanStage(filepath.Join(s.dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a disk that is not there: %v", err)
	}
	must(t, w.Abort())
}

// TestChangingDisksAreReadOnceMore: what changed since AddChanging is in the snapshot, and what didn't is not written again.
func TestChangingDisksAreReadOnceMore(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, 3*chunkBytes, 0, chunkBytes)
	w, err := s.Begin(t.Context())
	must(t, err)
	must(t, w.AddChanging(t.Context(), disk))
	if n := len(below(t, s, chunksDir)); n != 2 {
		t.Errorf("%d chunks are stored ahead, want 2", n)
	}
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("changed"), 2*chunkBytes)
	must(t, errors.Join(err, f.Close()))
	var asked atomic.Int32
	w.room = func() error { asked.Add(1); return nil }
	list, err := w.Add(t.Context(), disk)
	must(t, err)
	if n := asked.Load(); n != 1 {
		t.Errorf("%d chunks were written, want the one that changed", n)
	}
	must(t, w.Commit("a", aMeta(), list))
	to := filepath.Join(t.TempDir(), "to")
	_, err = s.WriteDisk(t.Context(), "a", to)
	must(t, err)
	got, err := os.ReadFile(to)
	must(t, err)
	if want, err := os.ReadFile(disk); err != nil || !bytes.Equal(got, want) {
		t.Errorf("it is not the disk as it was at last: %v", err)
	}
}

// TestSparseWritesKeepEveryByte writes all patterns of blocks with and without data, and an odd end.
func TestSparseWritesKeepEveryByte(t *testing.T) {
	t.Parallel()
	const blocks = 6
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	for pattern := range 1 << blocks {
		for _, end := range []int{0, 1, blockBytes - 1} {
			data := make([]byte, (blocks-1)*blockBytes+end)
			for b := range blocks {
				if at := b*blockBytes + 7*b; pattern>>b&1 == 1 && at < len(data) {
					data[at] = byte(b + 1)
				}
			}
			const at = 3 * blockBytes
			must(t, errors.Join(f.Truncate(0), f.Truncate(at+int64(len(data))), writeSparse(f, at, data)))
			got := make([]byte, len(data))
			if _, err := f.ReadAt(got, at); len(data) > 0 && err != nil || !bytes.Equal(got, data) {
				t.Fatalf("pattern %b with an end of %d bytes: %v", pattern, end, err)
			}
		}
	}
}

// TestListsSayWhatTheirChunksHold: the last chunk of a disk may be short.
func TestListsSayWhatTheirChunksHold(t *testing.T) {
	t.Parallel()
	for want, l := range map[int64]*List{
		0:              {Size: 3 * chunkBytes},
		chunkBytes:     {Size: 3 * chunkBytes, chunks: []chunkRef{{at: 1}}},
		chunkBytes + 5: {Size: 2*chunkBytes + 5, chunks: []chunkRef{{at: 0}, {at: 2}}},
		1:              {Size: 1, chunks: []chunkRef{{at: 0}}},
	} {
		if got := l.Bytes(); got != want {
			t.Errorf("%+v: %d bytes, want %d", l, got, want)
		}
	}
}

// TestI11_ListsAreBounded: a list of a TiB of chunks is read, and one chunk more is refused.
func TestI11_ListsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 1 << 40 / chunkBytes
	l := &List{Size: 2 * most * chunkBytes, chunks: make([]chunkRef, most+1)}
	for at := range l.chunks {
		l.chunks[at].at = int64(at)
	}
	text := l.encode()
	if _, err := parseList(text); !errors.Is(err, errList) {
		t.Errorf("a chunk more than 1 TiB: %v", err)
	}
	last := bytes.LastIndexByte(text[:len(text)-1], '\n')
	if got, err := parseList(text[:last+1]); err != nil || len(got.chunks) != most {
		t.Errorf("1 TiB of chunks: %v", err)
	}
}

// TestI13_StoresAreToldFromForeignFiles: whatever a store can hold is its own, and an entry of another name or kind is not.
func TestI13_StoresAreToldFromForeignFiles(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	list := take(t, s, "a", aDisk(t, chunkBytes, 0))
	w, err := s.Begin(t.Context())
	must(t, err)
	must(t, errors.Join(writeTo(filepath.Join(w.dir, newDir), aMeta(), list), writeTo(filepath.Join(w.dir, droppedDir), aMeta(), list)))
	for _, name := range []string{stagedDisk, "archive", "chunk-0", "chunk-17"} {
		must(t, os.WriteFile(filepath.Join(w.dir, name), nil, 0o600))
	}
	check := func() error {
		dir, err := os.Open(s.dir)
		must(t, err)
		defer dir.Close()
		return owned.Check(dir, Form)
	}
	if err := check(); err != nil {
		t.Errorf("its own files: %v", err)
	}
	work := filepath.Base(w.dir)
	sum := list.chunks[0].name()
	for _, name := range []string{
		"other", namesDir + "/file", namesDir + "/a/other", namesDir + "/-a/", chunksDir + "/zz/", chunksDir + "/abc/", chunksDir + "/file", chunksDir + "/" + sum[:2] + "/" + sum[1:],
		chunksDir + "/" + sum[:2] + "/" + strings.ToUpper(sum) + "F", tmpDir + "/file", tmpDir + "/" + strings.ToLower(work) + "/", tmpDir + "/" + work[1:] + "/",
		tmpDir + "/" + work + "/chunk-", tmpDir + "/" + work + "/chunk-x", tmpDir + "/" + work + "/disk2", tmpDir + "/" + work + "/dir/", tmpDir + "/" + work + "/" + newDir + "/other",
	} {
		path := s.path(strings.TrimSuffix(name, "/"))
		if strings.HasSuffix(name, "/") {
			must(t, os.Mkdir(path, 0o700))
		} else {
			must(t, os.WriteFile(path, nil, 0o600))
		}
		if err := check(); !errors.Is(err, owned.ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", name, err)
		}
		must(t, os.Remove(path))
	}
	for name, mode := range map[string]fs.FileMode{stagedDisk: fs.ModeDir, "archive": fs.ModeSymlink, "chunk-0": fs.ModeNamedPipe, newDir: 0, droppedDir: fs.ModeSymlink} {
		if _, ok := workForm(name, mode); ok {
			t.Errorf("%s of a work may be %v", name, mode)
		}
	}
	for _, name := range []string{lockFile, namesDir, chunksDir, tmpDir} {
		for _, mode := range []fs.FileMode{0, fs.ModeDir, fs.ModeSymlink} {
			want := fs.ModeDir
			if name == lockFile {
				want = 0
			}
			if _, ok := Form(name, mode); ok != (mode == want) {
				t.Errorf("%s as %v: %v", name, mode, ok)
			}
		}
	}
	must(t, w.Abort())
}

// sharing makes a store whose file system seems to share blocks: what it shares is copied. shared counts the ranges.
func sharing(t *testing.T) (s *Store, shared *atomic.Int32) {
	t.Helper()
	s, shared = newStore(t), new(atomic.Int32)
	s.shareRange = func(to *os.File, toAt int64, from *os.File, fromAt, length int64) error {
		shared.Add(1)
		data := make([]byte, length)
		_, err := from.ReadAt(data, fromAt)
		if err == nil {
			_, err = to.WriteAt(data, toAt)
		}
		return err
	}
	s.shareAll = func(to, from *os.File) error {
		_, err := io.Copy(to, from)
		return err
	}
	return s, shared
}

// TestSharedBlocksAreTheRightOnes, into a chunk and out of one, on file systems that share them. A disk that somebody writes to
// is never shared: a chunk would hold something else than was read.
func TestSharedBlocksAreTheRightOnes(t *testing.T) {
	t.Parallel()
	s, shared := sharing(t)
	disk := aDisk(t, 5*chunkBytes+512, 0, 2*chunkBytes, 5*chunkBytes)
	w, err := s.Begin(t.Context())
	must(t, err)
	must(t, w.AddChanging(t.Context(), aDisk(t, chunkBytes, 0)))
	if n := shared.Load(); n != 0 {
		t.Errorf("%d chunks of a disk in use were shared", n)
	}
	list, err := w.Add(t.Context(), disk)
	must(t, errors.Join(err, w.Commit("a", aMeta(), list)))
	if n := shared.Load(); n != 3 {
		t.Errorf("%d chunks were shared, want 3", n)
	}
	to := filepath.Join(t.TempDir(), "to")
	_, err = s.WriteDisk(t.Context(), "a", to)
	must(t, err)
	if n := shared.Load(); n != 6 {
		t.Errorf("%d chunks were shared, want 3 more", n-3)
	}
	got, err := os.ReadFile(to)
	must(t, err)
	if want, err := os.ReadFile(disk); err != nil || !bytes.Equal(got, want) {
		t.Errorf("another disk came back: %v", err)
	}
}

// TestStagedDisksAreCopies on file systems that share blocks. One that fails leaves nothing and is no answer.
func TestStagedDisksAreCopies(t *testing.T) {
	t.Parallel()
	s, _ := sharing(t)
	disk := aDisk(t, chunkBytes, 0)
	w, err := s.Begin(t.Context())
	must(t, err)
	if can, err := w.CanStage(disk); !can || err != nil {
		t.Errorf("it can %v: %v", can, err)
	}
	path, err := w.Stage(disk)
	must(t, err)
	got, err := os.ReadFile(path)
	must(t, err)
	if want, err := os.ReadFile(disk); err != nil || !bytes.Equal(got, want) {
		t.Errorf("another disk is staged: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	must(t, os.Remove(path))
	for failure, can := range map[error]error{errNoReflink: nil, io.ErrUnexpectedEOF: io.ErrUnexpectedEOF} {
		s.shareAll = func(*os.File, *os.File) error { return failure }
		if ok, err := w.CanStage(disk); ok || !errors.Is(err, can) {
			t.Errorf("%v: it can %v, %v", failure, ok, err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%v: a file is left", failure)
		}
	}
	must(t, w.Abort())
}
