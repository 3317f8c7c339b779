package tartree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzExtract extracts one archive after another as "copy", as a user does who copies from a guest again and again: whatever
// is beside it stays as it was. An archive is a line for each entry, of its type, its name and its link, and "--" is its end:
// tar's checksums would keep a fuzzer from all else.
func FuzzExtract(f *testing.F) {
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) > 4<<10 {
			return
		}
		dir := t.TempDir()
		cwd := filepath.Join(dir, "cwd")
		write(t, dir+"/victim", "precious", 0o600)
		write(t, cwd+"/keys/victim", "precious", 0o640)
		write(t, cwd+"/victim", "precious", 0o600)
		want := beside(t, dir)
		for part := range strings.SplitSeq(script, "\n--\n") {
			in := scripted(part)
			_, _ = Extract(t.Context(), in, openRoot(t, cwd), "copy", UnpackOptions{DropSetID: true, MaxBytes: 1 << 20, MaxEntries: 1000})
			if got := beside(t, dir); got != want {
				t.Fatalf("after %q there is\n%s\ninstead of\n%s", part, got, want)
			}
		}
	})
}

// scripted is the archive of those lines, without the entries that tar can't have.
func scripted(lines string) *bytes.Buffer {
	out := new(bytes.Buffer)
	for line := range strings.SplitSeq(lines, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		name, link, _ := strings.Cut(rest, " ")
		h := tar.Header{Name: name, Linkname: link, Mode: 0o6777}
		switch kind {
		case "dir":
			h.Typeflag = tar.TypeDir
		case "file":
			h.Typeflag, h.Linkname, h.Size = tar.TypeReg, "", int64(len(link))
		case "sym":
			h.Typeflag = tar.TypeSymlink
		case "hard":
			h.Typeflag = tar.TypeLink
		default:
			h.Typeflag = tar.TypeFifo
		}
		w := tar.NewWriter(out)
		if w.WriteHeader(&h) == nil {
			_, _ = w.Write([]byte(link)[:h.Size])
			_ = w.Flush()
		}
	}
	_ = tar.NewWriter(out).Close()
	return out
}

// beside tells what is in dir but for "cwd/copy".
func beside(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == filepath.Join(dir, "cwd", "copy") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		}
		fmt.Fprintf(&all, "%s %v %q\n", strings.TrimPrefix(path, dir), st.Mode(), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
