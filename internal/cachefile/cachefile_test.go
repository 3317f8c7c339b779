package cachefile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var content = bytes.Repeat([]byte("what msb can make again\n"), 4096)

func writeContent(w io.Writer) error {
	_, err := w.Write(content)
	return err
}

// later is when a file's times have settled, and tell any change.
func later() time.Time { return time.Now().Add(time.Hour) }

// check wants the content at path, as one of msb's own files, and nothing half-made beside it.
func check(t *testing.T, path string) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		t.Fatalf("%v, %v; want a regular file that nobody writes to", info, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes (%v), want the %d that belong there", len(got), err, len(content))
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), newPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// rewrite changes a file in place, and gives it its times back.
func rewrite(t *testing.T, path string, change func(f *os.File) error) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(change(f), f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime()), os.Chmod(path, info.Mode()))
	if err != nil {
		t.Fatal(err)
	}
}

// must fails the test with the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// damages are done to a file in place. Those of a sum leave the file as it is.
var damages = map[string]func(t *testing.T, path string){
	"removed":   func(t *testing.T, path string) { must(t, os.Remove(path)) },
	"truncated": func(t *testing.T, path string) { rewrite(t, path, func(f *os.File) error { return f.Truncate(100) }) },
	"empty":     func(t *testing.T, path string) { rewrite(t, path, func(f *os.File) error { return f.Truncate(0) }) },
	"longer": func(t *testing.T, path string) {
		rewrite(t, path, func(f *os.File) error { return f.Truncate(int64(len(content)) + 1) })
	},
	"one byte": func(t *testing.T, path string) {
		rewrite(t, path, func(f *os.File) error { _, err := f.WriteAt([]byte{content[777] ^ 1}, 777); return err })
	},
	"unreadable": func(t *testing.T, path string) { must(t, os.Chmod(path, 0)) },
	"writable":   func(t *testing.T, path string) { must(t, os.Chmod(path, 0o600)) },
	"a link": func(t *testing.T, path string) {
		must(t, os.Rename(path, path+".elsewhere"), os.Symlink(path+".elsewhere", path))
	},
	"a link to nothing":  func(t *testing.T, path string) { must(t, os.Remove(path), os.Symlink("/nosuch", path)) },
	"an empty directory": func(t *testing.T, path string) { must(t, os.Remove(path), os.Mkdir(path, 0o700)) },
	"a directory": func(t *testing.T, path string) {
		must(t, os.Remove(path), os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "somebody's"), nil, 0o600))
	},
	"a pipe":        func(t *testing.T, path string) { must(t, os.Remove(path), unix.Mkfifo(path, 0o400)) },
	"no sum":        func(t *testing.T, path string) { must(t, os.Remove(path+SumSuffix)) },
	"an empty sum":  func(t *testing.T, path string) { must(t, os.Truncate(path+SumSuffix, 0)) },
	"another's sum": func(t *testing.T, path string) { must(t, os.WriteFile(path+SumSuffix, []byte("00 1:2:3\n"), 0o600)) },
	"a sum that is a pipe": func(t *testing.T, path string) {
		must(t, os.Remove(path+SumSuffix), unix.Mkfifo(path+SumSuffix, 0o600))
	},
	"a sum that is a directory": func(t *testing.T, path string) {
		must(t, os.Remove(path+SumSuffix), os.MkdirAll(path+SumSuffix+"/x", 0o700))
	},
}

// TestDamagedFilesAreReplaced damages a file whose content was just written, and one whose times are relied on.
func TestDamagedFilesAreReplaced(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		for state, now := range map[string]time.Time{"new": time.Now(), "settled": later()} {
			t.Run(name+"/"+state, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "kernel")
				for range 2 {
					must(t, ensure(path, now, writeContent))
				}
				check(t, path)
				damage(t, path)
				must(t, ensure(path, now, writeContent))
				check(t, path)
				must(t, ensure(path, now, func(io.Writer) error { return errors.New("written once more") }))
			})
		}
	}
}

// TestReplacedFilesAreKept: nothing is deleted that msb did not make.
func TestReplacedFilesAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "kernel")
	must(t, os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "somebody's"), content, 0o600))
	must(t, Ensure(path, writeContent))
	check(t, path)
	kept, err := filepath.Glob(filepath.Join(dir, asidePrefix+"*", "kernel", "somebody's"))
	if err != nil || len(kept) != 1 {
		t.Errorf("the directory in the way is at %v (%v)", kept, err)
	}
	target := filepath.Join(dir, "target")
	must(t, os.WriteFile(target, []byte("untouched"), 0o600), os.Remove(path), os.Symlink(target, path))
	must(t, Ensure(path, writeContent))
	check(t, path)
	if got, err := os.ReadFile(target); err != nil || string(got) != "untouched" {
		t.Errorf("a link was followed: %q, %v", got, err)
	}
}

// TestRunningMachinesKeepTheirFile: what a machine has open is never written to.
func TestRunningMachinesKeepTheirFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kernel")
	must(t, Ensure(path, writeContent))
	open, err := os.Open(path)
	must(t, err)
	defer open.Close()
	must(t, os.Chmod(path, 0o644)) // reason enough to replace it
	must(t, Ensure(path, func(w io.Writer) error { _, err := io.WriteString(w, "another"); return err }))
	if got, err := io.ReadAll(open); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the open file has %d bytes (%v), want what it had", len(got), err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "another" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFailedWritesLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := errors.New("disk full")
	for range 2 {
		err := Ensure(filepath.Join(dir, "kernel"), func(w io.Writer) error { return errors.Join(writeContent(w), broken) })
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSettledFilesAreNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kernel")
	for _, step := range []struct {
		now   time.Time
		stamp bool
	}{{time.Now(), false}, {time.Now(), false}, {later(), true}, {later(), true}} {
		must(t, ensure(path, step.now, writeContent))
		st, ok := look(path)
		if _, stamp := recall(path); !ok || (stamp == stampOf(&st)) != step.stamp {
			t.Errorf("remembered %q of %q, want that it is all of it: %v", stamp, stampOf(&st), step.stamp)
		}
	}
	if b, err := os.ReadFile(path + SumSuffix); err != nil || len(b) >= maxSumBytes || !strings.HasSuffix(string(b), "\n") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestConcurrentCallsHealOneFile damages a file, and has several goroutines ask
// for it at once.
func TestConcurrentCallsHealOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kernel")
	for range 20 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := Ensure(path, writeContent); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		all.Wait()
		check(t, path)
		must(t, os.Remove(path))
	}
}

func BenchmarkSettled(b *testing.B) { benchmark(b, later()) }
func BenchmarkHashed(b *testing.B)  { benchmark(b, time.Now()) }

// benchmark looks at a file of the kernel's size.
func benchmark(b *testing.B, now time.Time) {
	b.ReportAllocs()
	path := filepath.Join(b.TempDir(), "kernel")
	kernel := make([]byte, 21_561_344)
	look := func() {
		if err := ensure(path, now, func(w io.Writer) error { _, err := w.Write(kernel); return err }); err != nil {
			b.Fatal(err)
		}
	}
	look()
	look()
	for b.Loop() {
		look()
	}
}

// TestI14_SumsAreReadThroughNoLink: somebody else's file says nothing of the cached one, which is made again.
func TestI14_SumsAreReadThroughNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Ensure(path, writeContent); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "sum")
	if err := errors.Join(os.Rename(path+SumSuffix, elsewhere), os.Symlink(elsewhere, path+SumSuffix)); err != nil {
		t.Fatal(err)
	}
	wrote := false
	if err := Ensure(path, func(w io.Writer) error { wrote = true; return writeContent(w) }); err != nil || !wrote {
		t.Errorf("written again: %t, %v", wrote, err)
	}
	check(t, path)
}

// TestI14_OtherUsersFilesAreMadeAgain: their owner may change them.
func TestI14_OtherUsersFilesAreMadeAgain(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(Ensure(path, writeContent), os.Chown(path, 1234, -1)); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(path, writeContent); err != nil {
		t.Fatal(err)
	}
	if st, ok := look(path); !ok || st.Uid != 0 {
		t.Errorf("it belongs to %d", st.Uid)
	}
}

// TestTimesCountOnceTheyHaveSettled: within a tick of the file system's clock a later change has the same times, so that the
// content itself is compared.
func TestTimesCountOnceTheyHaveSettled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := Ensure(path, writeContent); err != nil {
		t.Fatal(err)
	}
	st, _ := look(path)
	changed := time.Unix(st.Ctim.Unix())
	for _, c := range []struct {
		after   time.Duration
		trusted bool
	}{{0, false}, {2 * time.Second, false}, {4 * time.Second, true}} {
		if !intact(path, changed.Add(c.after)) {
			t.Errorf("%v after the change it is taken for damaged", c.after)
		}
		if _, stamp := recall(path); (stamp != "") != c.trusted {
			t.Errorf("%v after the change its times are kept as %q", c.after, stamp)
		}
	}
}
