package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// sparseArchive is an archive of one file that has size bytes of zeros, of which the archive holds none: the form of "PAX
// Format, Version 1.0" in the manual of GNU tar.
func sparseArchive(t *testing.T, size int64) []byte {
	t.Helper()
	records := ""
	for _, r := range [][2]string{{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.name", "zeros"}, {"GNU.sparse.realsize", fmt.Sprint(size)}} {
		text := " " + r[0] + "=" + r[1] + "\n"
		records += fmt.Sprint(len(text)+2) + text
	}
	extents := fmt.Sprintf("1\n%d\n0\n", size) // one, at the end, of no bytes
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, part := range [][2]string{{"x", records}, {"0", extents + strings.Repeat("\x00", 512-len(extents))}} {
		must(t, w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: '0', Size: int64(len(part[1])), Mode: 0o600, Format: tar.FormatUSTAR}))
		_, err := io.WriteString(w, part[1])
		must(t, errors.Join(err, w.Flush()))
	}
	must(t, w.Close())
	all := b.Bytes()
	all[156] = 'x' // the type of the first header
	return sum(all)
}

// sum puts the first header's checksum right.
func sum(header []byte) []byte {
	copy(header[148:], "        ")
	n := 0
	for _, c := range header[:512] {
		n += int(c)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", n))
	return header
}

// TestI11_CommitsFillNoDisk: a commit counted the bytes of the archive and not what they become, so that a sparse file of a
// kilobyte filled the disk. The twins have room.
func TestI11_CommitsFillNoDisk(t *testing.T) {
	t.Parallel()
	var directories bytes.Buffer
	w := tar.NewWriter(&directories)
	for i := range 1000 {
		must(t, w.WriteHeader(&tar.Header{Name: fmt.Sprint("d/", i), Typeflag: tar.TypeDir}))
	}
	must(t, w.Close())
	var names bytes.Buffer
	w = tar.NewWriter(&names)
	long := strings.Repeat("n/", 1<<17)
	for range 8 {
		must(t, w.WriteHeader(&tar.Header{Name: long, Linkname: long, Typeflag: tar.TypeSymlink}))
	}
	must(t, w.Close())
	for what, c := range map[string]struct {
		archive    []byte
		left, want int64 // want is -1 for ENOSPC
	}{
		"sparse, too large":   {sparseArchive(t, 1<<50), 10 << 20, -1},
		"sparse":              {sparseArchive(t, 1<<20), 10 << 20, 9<<20 - entryBytes},
		"directories":         {directories.Bytes(), 2 << 20, -1},
		"directories, room":   {directories.Bytes(), 1000 * entryBytes, 0},
		"long names":          {names.Bytes(), 2 << 20, -1},
		"file":                {anArchive(t, []string{"a"}, nil), entryBytes + 3, -1},
		"file, room":          {anArchive(t, []string{"a"}, nil), entryBytes + 4, 0},
		"of one sandbox":      {anArchive(t, []string{"etc/hostname"}, nil), entryBytes + 3, -1},
		"of one sandbox, too": {anArchive(t, []string{"etc/hostname"}, nil), entryBytes + 4, 0},
	} {
		var b bytes.Buffer
		err := copyArchive(&b, bytes.NewReader(c.archive), &c.left, leftOut)
		if errors.Is(err, syscall.ENOSPC) != (c.want < 0) || err == nil != (c.want >= 0) || c.want >= 0 && c.left != c.want {
			t.Errorf("%s: %v, %d left, want %d", what, err, c.left, c.want)
		}
		if b.Len() > 2<<20 {
			t.Errorf("%s: %d bytes are written", what, b.Len())
		}
	}
}

// TestCopiedArchivesAreFilesAndLinks: the copy has neither devices nor attributes, and its sparse files are whole.
func TestCopiedArchivesAreFilesAndLinks(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o750, Uid: 7, Gid: 8, ModTime: time.Unix(9, 0), PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.trusted.overlay.redirect": "/etc"}},
		{Name: "d/deleted", Typeflag: tar.TypeChar}, {Name: "d/disk", Typeflag: tar.TypeBlock, Devmajor: 254}, {Name: "d/pipe", Typeflag: tar.TypeFifo},
		{Name: "d/link", Typeflag: tar.TypeSymlink, Linkname: "../../etc"}, {Name: "d/hard", Typeflag: tar.TypeLink, Linkname: "d/link"},
	} {
		must(t, w.WriteHeader(&h))
	}
	must(t, w.Flush())
	in.Write(sparseArchive(t, 5000))
	left := int64(1 << 20)
	var out bytes.Buffer
	must(t, copyArchive(&out, &in, &left, nil))
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		got = append(got, fmt.Sprintf("%c %s %s %o %d:%d %d %d", h.Typeflag, h.Name, h.Linkname, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), len(data)))
		for k := range h.PAXRecords {
			if strings.HasPrefix(k, "SCHILY") || strings.HasPrefix(k, "GNU") {
				t.Errorf("%s has %s", h.Name, k)
			}
		}
	}
	if want := []string{"5 d/  750 7:8 9 0", "2 d/link ../../etc 0 0:0 0 0", "1 d/hard d/link 0 0:0 0 0", "0 zeros  600 0:0 0 5000"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	out.Reset()
	must(t, copyArchive(&out, bytes.NewReader(anArchive(t, []string{"a"}, nil)), &left, nil))
	if !bytes.HasSuffix(out.Bytes(), make([]byte, 1024)) { // POSIX.1-2017, pax, "ustar Interchange Format"
		t.Error("the copy has no end")
	}
	broken := errors.New("the guest found that a file changed")
	behind := io.MultiReader(bytes.NewReader(anArchive(t, []string{"a"}, nil)), iotest.ErrReader(broken))
	if err := copyArchive(io.Discard, behind, &left, nil); !errors.Is(err, broken) {
		t.Errorf("an error behind the archive: %v", err)
	}
}
