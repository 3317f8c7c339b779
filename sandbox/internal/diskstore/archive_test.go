package diskstore

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/msb-project/msb/sandbox/internal/state"
)

func exported(t *testing.T, s *Store, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, s.Export(t.Context(), name, &out, func(*Meta) (*Manifest, error) { return &Manifest{Name: name, Sandbox: "web"}, nil }))
	return out.Bytes()
}

// imported reads an archive into a new store, and looks at what is left of one that is refused.
func imported(t *testing.T, archive io.Reader) (*Store, *Manifest, error) {
	t.Helper()
	s := newStore(t)
	w, err := s.Begin(t.Context())
	must(t, err)
	m, list, err := w.Import(t.Context(), archive)
	if err == nil {
		err = w.Commit("in", aMeta(), list)
	}
	must(t, w.Abort())
	if err != nil {
		if left := append(below(t, s, chunksDir), below(t, s, tmpDir)...); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	return s, m, err
}

func TestArchivesComeBack(t *testing.T) {
	t.Parallel()
	for _, disk := range []string{aDisk(t, 5*chunkBytes+512, 0, chunkBytes, 5*chunkBytes), aDisk(t, 64<<20), aDisk(t, 512, 0), aDiskWithTwins(t)} {
		s := newStore(t)
		list := take(t, s, "out", disk)
		to, m, err := imported(t, bytes.NewReader(exported(t, s, "out")))
		if err != nil || m.Name != "out" || m.Disk != list.digest() {
			t.Fatalf("%+v, %v", m, err)
		}
		path := filepath.Join(t.TempDir(), "disk")
		_, err = to.WriteDisk(t.Context(), "in", path)
		must(t, err)
		want, err := os.ReadFile(disk)
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back (%v), want %d equal ones", len(got), err, len(want))
		}
	}
}

// aDiskWithTwins is a disk with two equal chunks, and another between them.
func aDiskWithTwins(t *testing.T) string {
	t.Helper()
	disk := aDisk(t, 4*chunkBytes, 0, chunkBytes)
	b, err := os.ReadFile(disk)
	must(t, err)
	copy(b[3*chunkBytes:], b[:chunkBytes])
	must(t, os.WriteFile(disk, b, 0o600))
	return disk
}

func sumOf(data string) [sha256.Size]byte { return sha256.Sum256([]byte(data)) }

// member is a part of an archive that a test writes.
type member struct {
	tar.Header
	content string
}

func file(name, content string) member {
	return member{tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o600}, content}
}

// written is a tar of the members in zstd; one whose content is shorter than its header says ends there.
func written(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	must(t, err)
	w := tar.NewWriter(z)
	for i := range members {
		must(t, w.WriteHeader(&members[i].Header))
		_, err := io.WriteString(w, members[i].content)
		must(t, err)
	}
	_ = w.Close()
	must(t, z.Close())
	return out.Bytes()
}

// TestI12_HostileArchivesAreRefused: each differs from the first, which is taken, in one thing.
func TestI12_HostileArchivesAreRefused(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("x", 4096)
	list := &List{Size: 4096, chunks: []chunkRef{{at: 0, sum: sumOf(data)}}}
	manifest := func(change func(*Manifest)) member {
		m := &Manifest{Version: archiveVersion, Name: "a", Sandbox: "web", Disk: list.digest()}
		if change != nil {
			change(m)
		}
		b, err := json.Marshal(m)
		must(t, err)
		return file(manifestMember, string(b))
	}
	other := func(l *List) []member {
		return []member{manifest(func(m *Manifest) { m.Disk = l.digest() }), file(listMember, string(l.encode()))}
	}
	good, index, chunk := manifest(nil), file(listMember, string(list.encode())), file(chunkMember+list.chunks[0].name(), data)
	long := chunk
	long.Size, long.content = 1<<40, data
	link := chunk
	link.Typeflag, link.Linkname, link.Size, link.content = tar.TypeSymlink, "/etc/passwd", 0, ""
	pax := chunk
	pax.Format, pax.PAXRecords = tar.FormatPAX, map[string]string{"MSB.x": "y"}
	global := member{Header: tar.Header{Name: "global", Typeflag: tar.TypeXGlobalHeader, Format: tar.FormatPAX, PAXRecords: map[string]string{"path": chunk.Name}}}
	as := func(kind byte) member {
		m := chunk
		if m.Typeflag = kind; kind != tar.TypeCont {
			m.Size, m.content = 0, ""
		}
		return m
	}
	wide := func() []byte {
		var out bytes.Buffer
		z, err := zstd.NewWriter(&out, zstd.WithWindowSize(8*archiveWindow), zstd.WithSingleSegment(false))
		must(t, err)
		plain, err := zstd.NewReader(bytes.NewReader(written(t, good, index, chunk)))
		must(t, err)
		defer plain.Close()
		_, err = io.Copy(z, plain)
		must(t, errors.Join(err, z.Flush(), z.Close())) // flushed, so that the window is written down
		return out.Bytes()
	}
	flipped := file(chunk.Name, "y"+data[1:])
	twoLengths := &List{Size: chunkBytes + 4096, chunks: []chunkRef{{0, sumOf(data)}, {1, sumOf(data)}}}
	whole := written(t, good, index, chunk)
	bomb := func(name string, size int64) []byte {
		var out bytes.Buffer
		z, err := zstd.NewWriter(&out)
		must(t, err)
		w := tar.NewWriter(z)
		must(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}))
		for n := int64(0); n < size; n += chunkBytes {
			_, err := w.Write(zeros[:])
			must(t, err)
		}
		must(t, errors.Join(w.Close(), z.Close()))
		return out.Bytes()
	}
	for what, archive := range map[string][]byte{
		"taken":                      whole,
		"nothing":                    nil,
		"no zstd":                    []byte("PK\x03\x04 and more of it"),
		"a tar that isn't packed":    []byte(strings.Repeat("\x00", 2048)),
		"an empty tar":               written(t),
		"cut short in a chunk":       whole[:len(whole)/2],
		"cut short at the end":       whole[:len(whole)-1],
		"bytes behind it":            append(bytes.Clone(whole), "more"...),
		"an archive behind it":       append(bytes.Clone(whole), whole...),
		"no manifest":                written(t, index, chunk),
		"the list first":             written(t, index, good, chunk),
		"no list":                    written(t, good, chunk),
		"an unknown key":             written(t, file(manifestMember, strings.Replace(good.content, "{", `{"policy":"version = 1",`, 1)), index, chunk),
		"no chunk":                   written(t, good, index),
		"a member more":              written(t, good, index, chunk, file("more", "x")),
		"a chunk twice":              written(t, good, index, chunk, chunk),
		"another name":               written(t, good, index, file("chunks/../../x", data)),
		"an absolute name":           written(t, good, index, file("/"+chunk.Name, data)),
		"a link":                     written(t, good, index, link),
		"a hard link":                written(t, good, index, as(tar.TypeLink)),
		"a FIFO":                     written(t, good, index, as(tar.TypeFifo)),
		"a contiguous file":          written(t, good, index, as(tar.TypeCont)),
		"a directory":                written(t, good, index, as(tar.TypeDir)),
		"a header for all":           written(t, good, index, global, chunk),
		"a header for all first":     written(t, global, good, index, chunk),
		"a manifest as a link":       written(t, member{Header: tar.Header{Name: manifestMember, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, index, chunk),
		"a chunk under two names":    written(t, good, index, file("./"+chunk.Name, data)),
		"a window of 64 MiB":         wide(),
		"extended headers":           written(t, good, index, pax),
		"a chunk of other bytes":     written(t, good, index, flipped),
		"a chunk cut off":            written(t, good, index, file(chunk.Name, data[1:])),
		"a chunk too long":           written(t, good, index, file(chunk.Name, data+"x")),
		"a chunk of a TiB":           written(t, good, index, long),
		"another version":            written(t, manifest(func(m *Manifest) { m.Version = 2 }), index, chunk),
		"another list":               written(t, manifest(func(m *Manifest) { m.Disk = "sha256:" + strings.Repeat("0", 64) }), index, chunk),
		"two manifests in one":       written(t, file(manifestMember, good.content+good.content), index, chunk),
		"no JSON":                    written(t, file(manifestMember, "x"), index, chunk),
		"a chunk of two lengths":     written(t, append(other(twoLengths), chunk)...),
		"a disk of no bytes":         written(t, append(other(&List{}), chunk)...),
		"a disk that is too large":   written(t, append(other(&List{Size: maxDiskBytes + 1}), chunk)...),
		"a chunk behind the disk":    written(t, append(other(&List{Size: 4096, chunks: []chunkRef{{1, sumOf(data)}}}), chunk)...),
		"a manifest without end":     bomb(manifestMember, maxManifestBytes+chunkBytes),
		"a first member without end": bomb("x", 64<<20),
	} {
		_, _, err := imported(t, bytes.NewReader(archive))
		if what == "taken" && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if what != "taken" && (!errors.Is(err, state.ErrSnapshotArchive) || state.KindOf(err) != state.KindImageRefused || strings.ContainsAny(err.Error(), "\x00\x1b")) {
			t.Errorf("%s: %v, want ErrSnapshotArchive", what, err)
		}
	}
}

// endless is a tar header of extended headers, again and again.
type endless struct{ block []byte }

func (e *endless) Read(p []byte) (int, error) { return copy(p, e.block), nil }

// TestI11_EndlessArchivesAreRefused packs a stream that no reader of tar gets to the end of.
func TestI11_EndlessArchivesAreRefused(t *testing.T) {
	t.Parallel()
	var one bytes.Buffer
	w := tar.NewWriter(&one)
	must(t, w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{"MSB.x": strings.Repeat("y", 400)}}))
	header := one.Bytes()[:1024] // the extended header and its records, without the file
	r, out := io.Pipe()
	go func() {
		z, err := zstd.NewWriter(out)
		if err == nil {
			_, err = io.Copy(z, &endless{header})
		}
		_ = out.CloseWithError(err)
	}()
	_, _, err := imported(t, r)
	if _ = r.Close(); !errors.Is(err, state.ErrSnapshotArchive) || !errors.Is(err, errTooLong) {
		t.Errorf("%v, want errTooLong", err)
	}
}

// TestI11_ClonesOfBombsFillNothing imports a small archive whose list names one chunk a thousand times, and makes a disk of it
// while there is room for a few chunks.
func TestI11_ClonesOfBombsFillNothing(t *testing.T) {
	t.Parallel()
	const chunks, fit = 1000, 5
	data := strings.Repeat("x", chunkBytes)
	list := &List{Size: chunks * chunkBytes}
	for at := range int64(chunks) {
		list.chunks = append(list.chunks, chunkRef{at, sumOf(data)})
	}
	m, err := json.Marshal(Manifest{Version: archiveVersion, Name: "a", Sandbox: "web", Disk: list.digest()})
	must(t, err)
	archive := written(t, file(manifestMember, string(m)), file(listMember, string(list.encode())), file(chunkMember+list.chunks[0].name(), data))
	s := newStore(t)
	w, err := s.Begin(t.Context())
	must(t, err)
	_, list, err = w.Import(t.Context(), bytes.NewReader(archive))
	must(t, err)
	meta := aMeta()
	meta.Imported = true
	must(t, w.Commit("in", meta, list))
	if len(archive) > 100<<10 {
		t.Errorf("the archive has %d bytes", len(archive))
	}
	var asked atomic.Int64
	s.free = func(string) (int64, error) { return state.MinFree + (fit-asked.Add(1))*chunkBytes, nil }
	path := filepath.Join(t.TempDir(), "disk")
	if _, err := s.WriteDisk(t.Context(), "in", path); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part of the disk stays: %v", err)
	}
	if n := asked.Load(); n > fit+2*int64(runtime.GOMAXPROCS(0))+1 {
		t.Errorf("%d chunks were written or begun where %d fit", n, fit)
	}
}

// TestI11_ArchivesLeaveRoom: what somebody else made takes no more of a disk than guests may, and a snapshot of one's own does.
func TestI11_ArchivesLeaveRoom(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	disk := aDisk(t, 2*chunkBytes, 0, chunkBytes)
	take(t, s, "out", disk)
	archive := exported(t, s, "out")
	to := newStore(t)
	to.forGuests = func(string) (int64, error) { return 0, syscall.ENOSPC }
	w, err := to.Begin(t.Context())
	must(t, err)
	if _, _, err := w.Import(t.Context(), bytes.NewReader(archive)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want ENOSPC", err)
	}
	must(t, w.Abort())
	if left := below(t, to, chunksDir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	take(t, to, "own", disk)

	to.forGuests = state.Spare
	w, err = to.Begin(t.Context())
	must(t, err)
	_, list, err := w.Import(t.Context(), bytes.NewReader(archive))
	must(t, err)
	meta := aMeta()
	meta.Imported = true
	must(t, w.Commit("in", meta, list))
	to.forGuests = func(string) (int64, error) { return 0, syscall.ENOSPC }
	for name, want := range map[string]error{"in": syscall.ENOSPC, "own": nil} {
		if _, err := to.WriteDisk(t.Context(), name, filepath.Join(t.TempDir(), "disk")); !errors.Is(err, want) {
			t.Errorf("the disk of %s: %v, want %v", name, err, want)
		}
	}
}
