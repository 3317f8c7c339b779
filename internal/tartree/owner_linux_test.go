package tartree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// owned is an archive of a directory, a file and a link, all of 11:12.
func owned(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1777}, {Name: "d/in/", Typeflag: tar.TypeDir, Mode: 0o3770},
		{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o6755}, {Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "f", Mode: 0o777},
	} {
		h.Uid, h.Gid = 11, 12
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestEveryEntryHasItsOwner and its mode with all bits: the directory itself, what is in it, and links, not what they lead to.
// A directory that was there keeps its own.
func TestEveryEntryHasItsOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	for name, unpack := range map[string]func(context.Context, io.Reader, *os.Root, UnpackOptions) error{
		"unpack": func(ctx context.Context, r io.Reader, root *os.Root, o UnpackOptions) error {
			_, err := Unpack(ctx, r, root, o)
			return err
		},
		"extract": func(ctx context.Context, r io.Reader, root *os.Root, o UnpackOptions) error {
			_, err := Extract(ctx, r, root, "d", o)
			return err
		},
	} {
		for _, c := range []struct {
			o        UnpackOptions
			uid, gid uint32
		}{
			{UnpackOptions{KeepOwner: true}, 11, 12}, {UnpackOptions{Owner: &Owner{21, 22}, KeepOwner: true}, 21, 22},
			{UnpackOptions{}, 0, 0}, {UnpackOptions{DropSetID: true}, 0, 0},
		} {
			for _, there := range []bool{false, true} {
				dir := t.TempDir()
				want := map[string]fs.FileMode{
					"d": fs.ModeDir | fs.ModeSticky | 0o777, "d/in": fs.ModeDir | fs.ModeSticky | fs.ModeSetgid | 0o770,
					"d/f": fs.ModeSetuid | fs.ModeSetgid | 0o755, "d/l": fs.ModeSymlink | 0o777,
				}
				if c.o.DropSetID {
					want["d/in"], want["d/f"] = want["d/in"]&^fs.ModeSetgid, 0o755
				}
				if there {
					if err := os.Mkdir(dir+"/d", 0o700); err != nil {
						t.Fatal(err)
					}
					want["d"] = fs.ModeDir | 0o700
				}
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(unpack(t.Context(), owned(t), root, c.o), root.Close()); err != nil {
					t.Fatal(err)
				}
				for file, mode := range want {
					st, err := os.Lstat(filepath.Join(dir, file))
					if err != nil {
						t.Fatal(err)
					}
					uid, gid := c.uid, c.gid
					if file == "d" && there {
						uid, gid = 0, 0
					}
					if sys := st.Sys().(*syscall.Stat_t); st.Mode() != mode || sys.Uid != uid || sys.Gid != gid {
						t.Errorf("%s of %+v, there %t: %s is %s of %d:%d, want %s of %d:%d", name, c.o, there, file, st.Mode(), sys.Uid, sys.Gid, mode, uid, gid)
					}
				}
			}
		}
	}
}

// TestI14_UnfinishedFilesAreTheirWritersAlone: until a file has its owner and permissions, nobody else reads what is in it.
func TestI14_UnfinishedFilesAreTheirWritersAlone(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"short": 10, "long": shortBytes + 10} {
		for _, before := range []bool{false, true} {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			err := w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o640, Size: int64(size)})
			if err == nil {
				_, err = w.Write(bytes.Repeat([]byte("s"), size))
			}
			if err = errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if before {
				if err := os.WriteFile(dir+"/f", nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			const head = 512
			looked := false
			look := readerFunc(func([]byte) (int, error) {
				looked = true
				all, err := os.ReadDir(dir)
				if err != nil {
					return 0, err
				}
				for _, e := range all {
					info, err := e.Info()
					if old := before && e.Name() == "f"; err != nil || !old && info.Mode() != 0o600 {
						t.Errorf("%s, before %t: %s is %v, %v", name, before, e.Name(), info.Mode(), err)
					}
				}
				return 0, io.EOF
			})
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			in := io.MultiReader(bytes.NewReader(b.Bytes()[:head]), look, bytes.NewReader(b.Bytes()[head:]))
			_, err = Unpack(t.Context(), in, root, UnpackOptions{})
			if err = errors.Join(err, root.Close()); err != nil || !looked {
				t.Errorf("%s: %v", name, err)
			}
			got, err := os.ReadFile(dir + "/f")
			st, _ := os.Stat(dir + "/f")
			if err != nil || string(got) != strings.Repeat("s", size) || st.Mode() != 0o640 {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		}
	}
}

// TestHardLinksToThemselvesRemoveNothing: the name would be gone before the link is made.
func TestHardLinksToThemselvesRemoveNothing(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: ".//f", Typeflag: tar.TypeLink, Linkname: "./f"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("there"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Unpack(t.Context(), &b, root, UnpackOptions{}); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "there" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHeadersSayWhatIsOfTheFile, to the nanosecond, and no names of this machine. What is asked for by itself comes with its content.
func TestHeadersSayWhatIsOfTheFile(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), time.Unix(1_000_000_000, 123_456_789)
	if err := errors.Join(os.Mkdir(dir+"/d", 0o700), os.WriteFile(dir+"/d/f", nil, 0o600), os.Chtimes(dir+"/d/f", at, at)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var b bytes.Buffer
	if _, err := Pack(t.Context(), &b, root, "d", PackOptions{Leave: func(string) bool { return true }}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if names = append(names, h.Name); h.Uname != "" || h.Gname != "" || h.Uid != os.Getuid() {
			t.Errorf("%s is of %d, %q and %q", h.Name, h.Uid, h.Uname, h.Gname)
		}
		if h.Name == "d/f" && !h.ModTime.Equal(at) {
			t.Errorf("it is of %s, want %s", h.ModTime, at)
		}
	}
	if !slices.Equal(names, []string{"d/", "d/f"}) {
		t.Errorf("%q", names)
	}
}

// TestCopiesEndInTheMiddleOfAFile when their caller gives up.
func TestCopiesEndInTheMiddleOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/f", nil, 0o600), os.Truncate(dir+"/f", 64<<20)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := &counting{end: cancel}
	if _, err := Pack(ctx, out, root, "f", PackOptions{}); !errors.Is(err, context.Canceled) || out.n > 4*copyBytes {
		t.Errorf("%d bytes, %v", out.n, err)
	}
}

// counting ends something with the first of what is written.
type counting struct {
	n   int
	end func()
}

func (c *counting) Write(b []byte) (int, error) {
	c.n += len(b)
	c.end()
	return len(b), nil
}

// TestI11_ReportsNameSomeOfWhatIsLeftOut and count the others.
func TestI11_ReportsNameSomeOfWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range maxSkipped + 6 {
		if err := syscall.Mkfifo(filepath.Join(dir, strings.Repeat("p", i+1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	r, err := Pack(t.Context(), io.Discard, root, ".", PackOptions{})
	if err != nil || len(r.Skipped) != maxSkipped || r.SkippedMore != 6 || r.Entries != 1 {
		t.Errorf("%d named, %d more, of %d entries, %v", len(r.Skipped), r.SkippedMore, r.Entries, err)
	}
}
