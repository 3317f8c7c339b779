package tartree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

// archive makes a tar of headers; a regular file's content is its Size in "x".
func archive(t *testing.T, list ...tar.Header) *bytes.Buffer {
	t.Helper()
	out := &bytes.Buffer{}
	w := tar.NewWriter(out)
	for _, h := range list {
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.ModTime = time.Unix(1, 0)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTreesComeBackAsTheyWere(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from+"/src/a.txt", "alpha", 0o640)
	write(t, from+"/src/deep/er/b", "beta", 0o755)
	write(t, from+"/src/suid", "s", 0o755|os.ModeSetuid)
	old := time.Unix(1e9, 0)
	for _, err := range []error{
		os.Symlink("../a.txt", from+"/src/deep/link"), os.Symlink("/etc/passwd", from+"/src/abs"),
		os.Link(from+"/src/a.txt", from+"/src/same"), os.Mkdir(from+"/src/empty", 0o555),
		syscall.Mkfifo(from+"/src/pipe", 0o600), os.Chtimes(from+"/src/a.txt", old, old), os.Chmod(from+"/src/deep", 0o511),
		os.Chtimes(from+"/src/deep", old, old),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var buf bytes.Buffer
	packed, err := Pack(t.Context(), &buf, openRoot(t, from), "src", PackOptions{As: "new"})
	if err != nil || len(packed.Skipped) != 1 || packed.Skipped[0] != "src/pipe" || packed.Bytes != 10 {
		t.Fatalf("packed %+v, %v", packed, err)
	}
	got, err := Extract(t.Context(), &buf, openRoot(t, to), "copy", UnpackOptions{})
	if err != nil || got.Entries != packed.Entries {
		t.Fatalf("extracted %+v of %+v: %v", got, packed, err)
	}
	wantText(t, to+"/copy/a.txt", "alpha")
	wantText(t, to+"/copy/deep/er/b", "beta")
	for name, mode := range map[string]fs.FileMode{
		"a.txt": 0o640, "deep": 0o511 | fs.ModeDir, "empty": 0o555 | fs.ModeDir, "suid": 0o755 | fs.ModeSetuid, "deep/link": 0o777 | fs.ModeSymlink,
	} {
		if st, err := os.Lstat(to + "/copy/" + name); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", name, st, err, mode)
		}
	}
	for _, name := range []string{"a.txt", "deep"} {
		if st, err := os.Stat(to + "/copy/" + name); err != nil || !st.ModTime().Equal(old) {
			t.Errorf("%s has another time: %v", name, err)
		}
	}
	a, err1 := os.Stat(to + "/copy/a.txt")
	b, err2 := os.Stat(to + "/copy/same")
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		t.Errorf("the hard link is a copy: %v %v", err1, err2)
	}
	if target, err := os.Readlink(to + "/copy/abs"); err != nil || target != "/etc/passwd" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

// TestI14_ReplacedFilesAreNotPacked: whoever may write to the directory puts another file in the place of one that was
// looked at, or a link to what is not packed.
func TestI14_ReplacedFilesAreNotPacked(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/precious", "precious", 0o600)
	for what, replace := range map[string]func(name string) error{
		"link": func(name string) error { return os.Symlink("../precious", name) },
		"file": func(name string) error { return os.Link(dir+"/precious", name) },
		"fifo": func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"same": nil,
	} {
		write(t, dir+"/src/"+what, "own", 0o600)
		root := openRoot(t, dir)
		st, err := root.Lstat("src/" + what)
		if err == nil && replace != nil {
			err = errors.Join(os.Remove(dir+"/src/"+what), replace(dir+"/src/"+what))
		}
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p := &packer{ctx: t.Context(), root: root, out: tar.NewWriter(&out), top: "src", links: map[linkID]string{}}
		if err := p.file("src/"+what, st); (err == nil) != (replace == nil) {
			t.Errorf("%s: %v", what, err)
		}
		if p.report.Entries != 0 != (replace == nil) {
			t.Errorf("%s: packed %+v", what, p.report)
		}
	}
}

// afterHeader calls do when the header of an entry is out.
type afterHeader struct {
	bytes.Buffer
	of string
	do func()
}

func (w *afterHeader) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte(w.of+"\x00")) {
		w.do()
	}
	return w.Buffer.Write(b)
}

// TestChangingFilesLeaveWholeArchives changes the first of two files once its header is out.
func TestChangingFilesLeaveWholeArchives(t *testing.T) {
	t.Parallel()
	const size = smallFile + 1
	for name, to := range map[string]int64{"a shrinks": 1, "a is emptied": 0, "a grows": size + 1, "a grows much": 3 * size, "nothing changes": size} {
		from, into := t.TempDir(), t.TempDir()
		write(t, from+"/src/a", strings.Repeat("a", size), 0o600)
		write(t, from+"/src/b", "beta", 0o600)
		out := &afterHeader{of: "src/a", do: func() {
			if err := os.Truncate(from+"/src/a", to); err != nil {
				t.Error(err)
			}
		}}
		r, err := Pack(t.Context(), out, openRoot(t, from), "src", PackOptions{})
		if errors.Is(err, ErrChanged) != (to != size) || err != nil && !strings.Contains(err.Error(), "src/a: changed while") || r.Bytes != size+4 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := Extract(t.Context(), &out.Buffer, openRoot(t, into), "src", UnpackOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := int(min(to, size))
		wantText(t, into+"/src/a", strings.Repeat("a", kept)+strings.Repeat("\x00", size-kept))
		wantText(t, into+"/src/b", "beta")
	}
}

// TestFilesWithoutASizeAreRead packs files of /proc, which show 0; one of them goes on and on.
func TestFilesWithoutASizeAreRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"version": nil, "self/pagemap": ErrChanged} {
		if _, err := os.Stat("/proc/" + name); err != nil {
			t.Skip("no /proc")
		}
		var out bytes.Buffer
		r, err := Pack(t.Context(), &out, openRoot(t, "/proc"), name, PackOptions{})
		if !errors.Is(err, want) || r.Bytes == 0 || want != nil && r.Bytes != maxWhole {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		into := t.TempDir()
		if _, err := Extract(t.Context(), &out, openRoot(t, into), "copy", UnpackOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "version" {
			text, err := os.ReadFile("/proc/version")
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, into+"/copy", string(text))
		}
	}
}

// TestLinksAloneAreCopied: a link that leads out of its directory could not be copied, and one to a directory came with the
// files of that.
func TestLinksAloneAreCopied(t *testing.T) {
	from := t.TempDir()
	write(t, from+"/dir/file", "alpha", 0o600)
	for _, target := range []string{"/etc", "../..", "dir", "dir/file", "nothing"} {
		link, to := from+"/link", t.TempDir()
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		r, err := Pack(t.Context(), &buf, openRoot(t, from), "link", PackOptions{})
		if err == nil {
			_, err = Extract(t.Context(), &buf, openRoot(t, to), "copy", UnpackOptions{})
		}
		if got, _ := os.Readlink(to + "/copy"); err != nil || got != target || r.Entries != 1 {
			t.Errorf("%s: %q, %+v, %v", target, got, r, err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpecialFilesAloneAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/socket", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, file := range []string{dir + "/pipe", dir + "/socket", "/dev/null"} {
		name := filepath.Base(file)
		if _, err := Pack(t.Context(), io.Discard, openRoot(t, filepath.Dir(file)), name, PackOptions{}); !errors.Is(err, errSpecial) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if r, err := Pack(t.Context(), io.Discard, openRoot(t, dir), ".", PackOptions{As: "x"}); err != nil || len(r.Skipped) != 2 || r.Entries != 1 {
		t.Errorf("their directory: %+v, %v", r, err)
	}
}

// hostile lists archives of a guest that wants to write beside "copy" in the
// user's directory.
func hostile(t *testing.T, outside string) map[string]*bytes.Buffer {
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 4} }
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink}
	}
	return map[string]*bytes.Buffer{
		"dots":                  archive(t, dir("d"), reg("d/../victim")),
		"dots above":            archive(t, dir("d"), reg("../victim")),
		"absolute":              archive(t, dir("d"), reg(outside+"/victim")),
		"sibling":               archive(t, dir("d"), reg("victim")),
		"sibling by prefix":     archive(t, dir("d"), reg("dd/victim")),
		"second file":           archive(t, reg("f"), reg("victim")),
		"through a link":        archive(t, dir("d"), link("d/l", outside), reg("d/l/victim")),
		"through a linked dir":  archive(t, dir("d"), link("d/l", ".."), reg("d/l/victim")),
		"directory over a link": archive(t, dir("d"), link("d/l", outside), dir("d/l"), reg("d/l/x"), link("d/m", "../.."), reg("d/m/victim")),
		"link, then below":      archive(t, link("d", "."), reg("d/victim")),
		"hard link out":         archive(t, dir("d"), hard("d/h", "../victim"), reg("d/h")),
		"hard link by a link":   archive(t, dir("d"), link("d/l", outside), hard("d/h", "d/l/victim"), reg("d/h")),
		"hard link first":       archive(t, hard("d", "victim")),
	}
}

func TestI14_ArchivesStayWithinTheirName(t *testing.T) {
	for name := range hostile(t, "/nowhere") {
		t.Run(name, func(t *testing.T) {
			outside, cwd := t.TempDir(), t.TempDir()
			write(t, outside+"/victim", "precious", 0o600)
			write(t, cwd+"/victim", "precious", 0o600)
			_, err := Extract(t.Context(), hostile(t, outside)[name], openRoot(t, cwd), "copy", UnpackOptions{})
			if err == nil {
				t.Error("no error")
			}
			wantText(t, outside+"/victim", "precious")
			wantText(t, cwd+"/victim", "precious")
			if list, _ := os.ReadDir(cwd); len(list) > 2 {
				t.Errorf("besides copy and victim there is more: %v", list)
			}
			if list, _ := os.ReadDir(outside); len(list) != 1 {
				t.Errorf("outside: %v", list)
			}
		})
	}
}

func TestI14_LinksThatAreThereLeadNowhere(t *testing.T) {
	outside, cwd := t.TempDir(), t.TempDir()
	write(t, outside+"/victim", "precious", 0o600)
	for _, err := range []error{
		os.Mkdir(cwd+"/copy", 0o755), os.Symlink(outside, cwd+"/copy/out"), os.Symlink(outside+"/victim", cwd+"/copy/file"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	in := archive(t, tar.Header{Name: "d", Typeflag: tar.TypeDir}, tar.Header{Name: "d/file", Typeflag: tar.TypeReg, Size: 2})
	if _, err := Extract(t.Context(), in, openRoot(t, cwd), "copy", UnpackOptions{}); err != nil {
		t.Errorf("a link in a file's place is replaced: %v", err)
	}
	wantText(t, cwd+"/copy/file", "xx")
	in = archive(t, tar.Header{Name: "d", Typeflag: tar.TypeDir}, tar.Header{Name: "d/out/victim", Typeflag: tar.TypeReg, Size: 2})
	if _, err := Extract(t.Context(), in, openRoot(t, cwd), "copy", UnpackOptions{}); !errors.Is(err, errOutside) {
		t.Errorf("got %v, want ErrOutside", err)
	}
	wantText(t, outside+"/victim", "precious")
}

// TestI14_LinksInACopysPlaceAreNotFollowed: the first copy of a guest's file may leave a link to a directory beside it, into
// which the second one would write. The twin is a directory that is there.
func TestI14_LinksInACopysPlaceAreNotFollowed(t *testing.T) {
	for _, linked := range []bool{true, false} {
		cwd := t.TempDir()
		if err := os.Mkdir(cwd+"/keys", 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, cwd+"/keys/victim", "precious", 0o600)
		place := "keys"
		if linked {
			first := archive(t, tar.Header{Name: "d", Linkname: "keys", Typeflag: tar.TypeSymlink})
			if _, err := Extract(t.Context(), first, openRoot(t, cwd), "copy", UnpackOptions{}); err != nil {
				t.Fatal(err)
			}
			place = "copy"
		}
		again := archive(t, tar.Header{Name: "d", Typeflag: tar.TypeDir}, tar.Header{Name: "d/victim", Typeflag: tar.TypeReg, Size: 2})
		_, err := Extract(t.Context(), again, openRoot(t, cwd), place, UnpackOptions{})
		if errors.Is(err, errLinked) != linked {
			t.Errorf("linked %t: %v", linked, err)
		}
		wantText(t, cwd+"/keys/victim", map[bool]string{true: "precious", false: "xx"}[linked])
	}
}

// TestMergedDirectoriesKeepTheirMode: a copy into a private directory doesn't open it to others. The twin is a directory
// that the copy makes.
func TestMergedDirectoriesKeepTheirMode(t *testing.T) {
	for _, there := range []bool{true, false} {
		cwd := t.TempDir()
		if there {
			if err := os.MkdirAll(cwd+"/copy/sub", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		in := archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/sub/", Typeflag: tar.TypeDir, Mode: 0o755})
		if _, err := Extract(t.Context(), in, openRoot(t, cwd), "copy", UnpackOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/copy", "/copy/sub"} {
			want := map[bool]fs.FileMode{true: 0o700, false: 0o755}[there]
			if st, err := os.Stat(cwd + name); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s, there before %t: %v, %v; want %v", name, there, st, err, want)
			}
		}
	}
}

func TestBrokenArchivesLeaveTheOldFile(t *testing.T) {
	cwd := t.TempDir()
	write(t, cwd+"/copy", "old", 0o600)
	in := archive(t, tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 100_000})
	in.Truncate(50_000)
	if _, err := Extract(t.Context(), in, openRoot(t, cwd), "copy", UnpackOptions{}); err == nil {
		t.Error("no error")
	}
	wantText(t, cwd+"/copy", "old")
	if list, _ := os.ReadDir(cwd); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

func TestLeftoversOfKilledCopiesStopNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/f", "old", 0o600)
	for i := range 150 {
		write(t, fmt.Sprintf("%s/.msb-copy-%d", dir, i), "half", 0o600)
	}
	in := archive(t, tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3})
	if _, err := Unpack(t.Context(), in, openRoot(t, dir), UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir + "/f"); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 151 {
		t.Errorf("%d files", len(list))
	}
}

func TestErrorsNameTheFileThatWasAskedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := &unpacker{root: openRoot(t, dir)}
	for _, beside := range []bool{true, false} {
		var failed *fs.PathError
		if _, _, err := u.create("missing/f", beside); !errors.As(err, &failed) || failed.Path != "missing/f" {
			t.Errorf("written beside: %v: %v", beside, err)
		}
	}
}

// TestI13_LongFilesAreNamedAtTheirEnd: who is killed while it extracts leaves no half file under the name.
func TestI13_LongFilesAreNamedAtTheirEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	size := int64(shortBytes + 1)
	in := archive(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644, Size: size})
	head := in.Next(512)
	look := readerFunc(func([]byte) (int, error) {
		if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in the middle it is there: %v", err)
		}
		return 0, io.EOF
	})
	rest := make([]byte, size+2*512) // with padding and end
	source := io.MultiReader(bytes.NewReader(head), bytes.NewReader(rest[:shortBytes]), look, bytes.NewReader(append(rest[shortBytes:], make([]byte, 512)...)))
	if _, err := Unpack(t.Context(), source, openRoot(t, dir), UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 || list[0].Name() != "a" {
		t.Fatalf("%v, %v", list, err)
	}
	if info, err := list[0].Info(); err != nil || info.Size() != size || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestI11_ArchivesKeepWithinTheirLimits(t *testing.T) {
	for name, o := range map[string]UnpackOptions{"bytes": {MaxBytes: 99}, "entries": {MaxEntries: 1}} {
		cwd := t.TempDir()
		in := archive(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 50}, tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: 50})
		if _, err := Unpack(t.Context(), in, openRoot(t, cwd), o); !errors.Is(err, errLimit) {
			t.Errorf("%s: got %v", name, err)
		}
		if list, _ := os.ReadDir(cwd); len(list) != 1 {
			t.Errorf("%s: %v", name, list)
		}
	}
}

// TestI14_DirectoriesThatBecomeLinksChangeNoModes: a directory of the archive gets its permissions at the end. A link had taken
// its place by then, and a file that was there before became writable for everybody.
func TestI14_DirectoriesThatBecomeLinksChangeNoModes(t *testing.T) {
	for what, h := range map[string]tar.Header{
		"symbolic link": {Name: "top/d", Linkname: "key", Typeflag: tar.TypeSymlink}, "hard link": {Name: "top/d", Linkname: "top/key", Typeflag: tar.TypeLink},
		"none": {Name: "top/e", Linkname: "key", Typeflag: tar.TypeSymlink},
	} {
		cwd := t.TempDir()
		write(t, cwd+"/top/key", "value", 0o600)
		in := archive(t, tar.Header{Name: "top", Typeflag: tar.TypeDir}, tar.Header{Name: "top/d", Typeflag: tar.TypeDir, Mode: 0o777}, h)
		if _, err := Extract(t.Context(), in, openRoot(t, cwd), "top", UnpackOptions{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if st, err := os.Stat(cwd + "/top/key"); err != nil || st.Mode() != 0o600 || time.Since(st.ModTime()) > time.Hour {
			t.Errorf("%s: the file that was there has %v, %v", what, st.Mode(), err)
		}
		if st, err := os.Lstat(cwd + "/top/d"); what == "none" && (err != nil || st.Mode() != fs.ModeDir|0o777) {
			t.Errorf("the directory has %v, %v", st.Mode(), err)
		}
	}
}

// onText calls do once a text has been written.
type onText struct {
	io.Writer
	text string
	do   func()
}

func (w *onText) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) && w.do != nil {
		w.do()
		w.do = nil
	}
	return w.Writer.Write(b)
}

// TestI14_LinksThatComeMeanwhileLeadNowhere: a guest that may write into the directory, too, leads the copy to what lies
// beside it. The twin is a link that stays in the directory.
func TestI14_LinksThatComeMeanwhileLeadNowhere(t *testing.T) {
	for target, leads := range map[string]bool{"../beside": false, "other": true} {
		dir := t.TempDir()
		write(t, dir+"/work/d/a", "first", 0o600)
		write(t, dir+"/work/d/key", "decoy", 0o600)
		write(t, dir+"/work/other/key", "other", 0o600)
		write(t, dir+"/beside/key", "value", 0o600)
		var out bytes.Buffer
		meanwhile := &onText{Writer: &out, text: "first", do: func() {
			if err := errors.Join(os.Rename(dir+"/work/d", dir+"/work/e"), os.Symlink(target, dir+"/work/d")); err != nil {
				t.Error(err)
			}
		}}
		_, err := Pack(t.Context(), meanwhile, openRoot(t, dir), "work", PackOptions{})
		if got := bytes.Contains(out.Bytes(), []byte("value")); got || leads == escapes(err) || leads && err != nil {
			t.Errorf("a link to %s: the archive has what is beside %t, %v", target, got, err)
		}
	}
}

// TestI11_DirectoriesThatAreNotListedCount: a guest makes thousands of directories of this machine by one name. The twins are
// the same archives without a bound.
func TestI11_DirectoriesThatAreNotListedCount(t *testing.T) {
	const depth, most = 150, 100
	deep := "top/" + strings.Repeat("n/", depth)
	for what, h := range map[string]tar.Header{
		"file": {Name: deep + "x", Typeflag: tar.TypeReg}, "directory": {Name: deep + "x", Typeflag: tar.TypeDir}, "link": {Name: deep + "x", Linkname: "y", Typeflag: tar.TypeSymlink},
	} {
		for _, bound := range []int64{most, 0} {
			cwd := t.TempDir()
			in := archive(t, tar.Header{Name: "top", Typeflag: tar.TypeDir}, tar.Header{Name: "top/a/b/c/d", Typeflag: tar.TypeReg}, h)
			_, err := Extract(t.Context(), in, openRoot(t, cwd), "top", UnpackOptions{MaxEntries: bound})
			made := 0
			if e := filepath.WalkDir(cwd, func(string, fs.DirEntry, error) error { made++; return nil }); e != nil {
				t.Fatal(e)
			}
			if bounded := errors.Is(err, errLimit); bounded != (bound > 0) || !bounded && err != nil || (made > most) == bounded {
				t.Errorf("%s, at most %d: %d files and directories, %v", what, bound, made, err)
			}
		}
	}
	in := archive(t, tar.Header{Name: "top", Typeflag: tar.TypeDir}, tar.Header{Name: "top/a/b/c", Typeflag: tar.TypeReg}, tar.Header{Name: "top/a/b/d", Typeflag: tar.TypeReg})
	if _, err := Extract(t.Context(), in, openRoot(t, t.TempDir()), "top", UnpackOptions{MaxEntries: 5}); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	in = archive(t, tar.Header{Name: "top", Typeflag: tar.TypeDir}, tar.Header{Name: "top/a/b/c", Typeflag: tar.TypeReg}, tar.Header{Name: "top/d/e/f", Typeflag: tar.TypeReg})
	if _, err := Extract(t.Context(), in, openRoot(t, t.TempDir()), "top", UnpackOptions{MaxEntries: 5}); !errors.Is(err, errLimit) {
		t.Errorf("those of two files are too many together: %v", err)
	}
}

func TestSetIDAndDevicesAreDropped(t *testing.T) {
	cwd := t.TempDir()
	in := archive(t, tar.Header{Name: "s", Typeflag: tar.TypeReg, Mode: 0o6755}, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})
	r, err := Unpack(t.Context(), in, openRoot(t, cwd), UnpackOptions{DropSetID: true})
	if err != nil || len(r.Skipped) != 2 || r.Skipped[0] != "null" {
		t.Errorf("%+v, %v", r, err)
	}
	if st, err := os.Stat(cwd + "/s"); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
	if list, _ := os.ReadDir(cwd); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

// TestI11_NamesInMessagesAreBounded: an archive may hold names of a megabyte, which errors and reports showed whole.
func TestI11_NamesInMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("n/", 1<<18)
	for what, h := range map[string]tar.Header{
		"file": {Name: long + "x", Typeflag: tar.TypeReg}, "link": {Name: "l", Linkname: long + "x", Typeflag: tar.TypeSymlink},
		"outside": {Name: "../" + long + "x", Typeflag: tar.TypeReg}, "hard link": {Name: "h", Linkname: long + "x", Typeflag: tar.TypeLink},
		"sound": {Name: "d/x", Typeflag: tar.TypeReg},
	} {
		for _, whole := range []bool{true, false} {
			in := archive(t, tar.Header{Name: "d", Typeflag: tar.TypeDir}, h)
			var err error
			if whole {
				_, err = Unpack(t.Context(), in, openRoot(t, t.TempDir()), UnpackOptions{})
			} else {
				_, err = Extract(t.Context(), in, openRoot(t, t.TempDir()), "copy", UnpackOptions{})
			}
			if want := what != "sound"; (err != nil) != want || err != nil && len(err.Error()) > 1<<10 {
				t.Errorf("%s: an error %t, want %t; of %d bytes", what, err != nil, want, len(fmt.Sprint(err)))
			}
		}
	}
	r, err := Unpack(t.Context(), archive(t, tar.Header{Name: long + "x", Typeflag: tar.TypeFifo}), openRoot(t, t.TempDir()), UnpackOptions{})
	if !errors.Is(err, errLimit) || len(r.Skipped) > 0 {
		t.Errorf("a FIFO: %d skipped, %v", len(r.Skipped), err)
	}
}

// TestI11_NamesOfDirectoriesAreBounded: 65,536 directories whose names had 64 KiB took 4 GiB of this machine's memory. The
// twins are directories with short names.
func TestI11_NamesOfDirectoriesAreBounded(t *testing.T) {
	for _, depth := range []int{1, 240} {
		deep := strings.Repeat(strings.Repeat("n", 250)+"/", depth)
		const count = 145
		all := make([]tar.Header, 0, count)
		for i := range count {
			all = append(all, tar.Header{Name: deep + strconv.Itoa(i), Typeflag: tar.TypeDir, Mode: 0o500})
		}
		dir := t.TempDir()
		u := &unpacker{ctx: t.Context(), root: openRoot(t, dir)}
		if err := u.entries(tar.NewReader(archive(t, all...)), ""); err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, d := range u.dirs {
			held += len(d.name)
		}
		if held > maxDirNames || (len(u.dirs) == count) != (depth == 1) {
			t.Errorf("%d deep: %d bytes of %d names are held", depth, held, len(u.dirs))
		}
		st, err := u.root.Stat(deep + strconv.Itoa(count-1))
		if want := map[int]fs.FileMode{1: 0o500, 240: 0o700}[depth]; err != nil || st.Mode().Perm() != want {
			t.Errorf("%d deep: %v, %v, want %v", depth, st, err, want)
		}
	}
}

// TestLinksReplaceWhatIsThere copies a tree onto an older copy whose links were files and led elsewhere.
func TestLinksReplaceWhatIsThere(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from+"/src/a", "alpha", 0o600)
	write(t, to+"/src/link", "old", 0o600)
	write(t, to+"/src/same", "old", 0o600)
	if err := errors.Join(os.Symlink("a", from+"/src/link"), os.Link(from+"/src/a", from+"/src/same")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var buf bytes.Buffer
		if _, err := Pack(t.Context(), &buf, openRoot(t, from), "src", PackOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Extract(t.Context(), &buf, openRoot(t, to), "src", UnpackOptions{}); err != nil {
			t.Fatal(err)
		}
		target, err := os.Readlink(to + "/src/link")
		a, err1 := os.Stat(to + "/src/a")
		b, err2 := os.Stat(to + "/src/same")
		if err := errors.Join(err, err1, err2); err != nil || target != "a" || !os.SameFile(a, b) {
			t.Errorf("the link leads to %q, one file: %t; %v", target, os.SameFile(a, b), err)
		}
	}
}

// TestSetIDBitsOutliveTheOwner: to give a file away takes them off, so that they are set behind it.
func TestSetIDBitsOutliveTheOwner(t *testing.T) {
	for what, o := range map[string]UnpackOptions{
		"an owner for all":  {Owner: &Owner{UID: os.Getuid(), GID: os.Getgid()}},
		"as in the archive": {KeepOwner: true},
	} {
		for _, size := range []int64{1, shortBytes + 1} { // a long one is written beside its name
			dir := t.TempDir()
			in := archive(t, tar.Header{Name: "su", Typeflag: tar.TypeReg, Mode: 0o4755, Size: size, Uid: os.Getuid(), Gid: os.Getgid()})
			if _, err := Unpack(t.Context(), in, openRoot(t, dir), o); err != nil {
				t.Fatal(err)
			}
			if st, err := os.Stat(filepath.Join(dir, "su")); err != nil || st.Mode() != fs.ModeSetuid|0o755 {
				t.Errorf("%s, of %d bytes: %v, %v", what, size, st.Mode(), err)
			}
		}
	}
}
