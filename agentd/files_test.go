//go:build linux

package agentd

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/internal/transfer"
)

// guestFiles is a session and a directory that stands for the guest's tree.
func guestFiles(t *testing.T) (*agentclient.Files, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dial(t, agentclient.Options{}).Files(), dir
}

// throughProxy is guestFiles with a supervisor's proxy between.
func throughProxy(t *testing.T) (*agentclient.Files, string) {
	t.Helper()
	dir := t.TempDir() // removed when the agent has ended, which may write there until then
	return viaProxy(t, dial(t, agentclient.Options{}), agentclient.Services{}), dir
}

// viaProxy are a guest's files as a supervisor's client has them.
func viaProxy(t *testing.T, guest *session, also agentclient.Services) *agentclient.Files {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- agentclient.Serve(ctx, handoff.Of(far), guest.Client, also) }()
	client, err := agentclient.Attach(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		cancel()
		<-served
	})
	return client.Files()
}

// eventually waits for what another goroutine does soon.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// eachWay runs a test against the agent, and through a proxy without and with a transfer disk.
func eachWay(t *testing.T, test func(t *testing.T, f *agentclient.Files, dir string)) {
	t.Run("agent", func(t *testing.T) { f, dir := guestFiles(t); test(t, f, dir) })
	t.Run("proxy", func(t *testing.T) { f, dir := throughProxy(t); test(t, f, dir) })
	t.Run("disk", func(t *testing.T) { dir := t.TempDir(); test(t, byDisk(t).Files, dir) })
}

func TestFilesAreWrittenAndRead(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		ctx, name := t.Context(), dir+"/f"
		want := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // 640 kB: several windows
		st, err := f.WriteFile(ctx, name, bytes.NewReader(want), agentclient.WriteOptions{Mode: 0o750 | fs.ModeSetuid})
		if err != nil || st.Size() != int64(len(want)) || st.Mode() != 0o750|fs.ModeSetuid || st.Name() != "f" {
			t.Fatalf("wrote %+v, %v", st, err)
		}
		for _, c := range []struct{ offset, length, want int64 }{{0, 0, 640_000}, {16, 16, 16}, {639_990, 100, 10}, {700_000, 0, 0}} {
			r, err := f.Open(ctx, name, c.offset, c.length)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			r.Close()
			if err != nil || int64(len(got)) != c.want || !bytes.HasPrefix(want[min(c.offset, 640_000):], got) {
				t.Errorf("%+v: %d bytes, %v", c, len(got), err)
			}
		}
		if _, err := f.WriteFile(ctx, name, strings.NewReader("more"), agentclient.WriteOptions{Append: true}); err != nil {
			t.Error(err)
		}
		if b, _ := os.ReadFile(name); len(b) != 640_004 || string(b[640_000:]) != "more" {
			t.Errorf("appended: %d bytes", len(b))
		}
		if _, err := f.WriteFile(ctx, dir+"/new", strings.NewReader("first"), agentclient.WriteOptions{Append: true}); err != nil {
			t.Error(err)
		}
		if b, _ := os.ReadFile(dir + "/new"); string(b) != "first" {
			t.Errorf("appended to no file: %q", b)
		}
	})
}

// TestExclusiveWritesReplaceNothing that came into being while they were under way.
func TestExclusiveWritesReplaceNothing(t *testing.T) {
	f, dir := guestFiles(t)
	name := dir + "/f"
	source := io.MultiReader(strings.NewReader("mine"), readerFunc(func([]byte) (int, error) {
		for list, _ := os.ReadDir(dir); len(list) == 0; list, _ = os.ReadDir(dir) { // else it is there before the write begins
			if t.Context().Err() != nil {
				return 0, t.Context().Err()
			}
			time.Sleep(time.Millisecond)
		}
		if err := os.WriteFile(name, []byte("theirs"), 0o600); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}))
	if _, err := f.WriteFile(t.Context(), name, source, agentclient.WriteOptions{Exclusive: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(name); string(b) != "theirs" {
		t.Errorf("the file holds %q", b)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left: %v", list)
	}
}

// readerFunc is a reader that is a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestWritesKeepOwnerModeAndLink(t *testing.T) {
	f, dir := guestFiles(t)
	if err := os.WriteFile(dir+"/real", []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteFile(t.Context(), dir+"/link", strings.NewReader("new"), agentclient.WriteOptions{Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(dir + "/link"); err != nil || st.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	st, err := os.Stat(dir + "/real")
	if b, _ := os.ReadFile(dir + "/real"); err != nil || st.Mode() != 0o640 || string(b) != "new" {
		t.Errorf("%v %q %v", st.Mode(), b, err)
	}
}

func TestI13_BrokenWritesLeaveTheFile(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		name := dir + "/f"
		if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		broken := errors.New("the source broke")
		source := io.MultiReader(bytes.NewReader(make([]byte, 300_000)), iotest.ErrReader(broken))
		if _, err := f.WriteFile(t.Context(), name, source, agentclient.WriteOptions{}); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		reader, writer := io.Pipe()
		go func() {
			_, _ = writer.Write(make([]byte, 200_000))
			cancel()
			_ = writer.Close()
		}()
		if _, err := f.WriteFile(ctx, name, reader, agentclient.WriteOptions{}); err == nil {
			t.Error("a cancelled write has no error")
		}
		eventually(t, "the temporary files are gone", func() bool {
			list, _ := os.ReadDir(dir)
			return len(list) == 1
		})
		if b, _ := os.ReadFile(name); string(b) != "old" {
			t.Errorf("the file holds %d bytes", len(b))
		}
	})
}

func TestFileErrorsMatchTheKernels(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		ctx := t.Context()
		if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir+"/d", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/d/x", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		write := func(name string, o agentclient.WriteOptions) error {
			_, err := f.WriteFile(ctx, name, strings.NewReader("x"), o)
			return err
		}
		read := func(name string) error { _, err := f.Open(ctx, name, 0, 0); return err }
		_, statErr := f.Stat(ctx, dir+"/none", true)
		_, listErr := f.ReadDir(ctx, dir+"/d/x")
		_, packErr := f.Pack(ctx, dir+"/none", "", false)
		_, unpackErr := f.Unpack(ctx, dir+"/none", strings.NewReader(""), nil)
		for what, c := range map[string]struct{ err, want error }{
			"stat": {statErr, fs.ErrNotExist}, "list": {listErr, syscall.ENOTDIR}, "read": {read(dir + "/none"), fs.ErrNotExist},
			"read directory": {read(dir + "/d"), syscall.EISDIR}, "relative": {read("f"), syscall.EINVAL}, "NUL": {read("/a\x00b"), syscall.EINVAL},
			"long":      {read("/" + strings.Repeat("a/", 2100)), syscall.ENAMETOOLONG},
			"exclusive": {write(dir+"/d/x", agentclient.WriteOptions{Exclusive: true}), fs.ErrExist},
			"over dir":  {write(dir+"/d", agentclient.WriteOptions{}), syscall.EISDIR},
			"no parent": {write(dir+"/none/x", agentclient.WriteOptions{}), fs.ErrNotExist},
			"mkdir":     {f.Mkdir(ctx, dir+"/d", agentclient.MkdirOptions{}), fs.ErrExist},
			"rmdir":     {f.Remove(ctx, dir+"/d", false), syscall.ENOTEMPTY}, "remove": {f.Remove(ctx, dir+"/none", true), fs.ErrNotExist},
			"remove /": {f.Remove(ctx, "/../", true), syscall.EBUSY}, "rename": {f.Rename(ctx, dir+"/none", dir+"/y"), fs.ErrNotExist},
			"pack": {packErr, fs.ErrNotExist}, "unpack": {unpackErr, fs.ErrNotExist},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: got %v, want %v", what, c.err, c.want)
			}
		}
		_, special := f.Pack(ctx, dir+"/pipe", "", false)
		for what, err := range map[string]error{"pack": special, "read": read(dir + "/pipe"), "write": write(dir+"/pipe", agentclient.WriteOptions{})} {
			if !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("%s of a FIFO: %v", what, err)
			}
		}
		if st, err := f.Stat(ctx, dir+"/pipe", false); err != nil || st.Type() != fs.ModeNamedPipe {
			t.Errorf("after all of it: %v, %v", st, err)
		}
	})
}

func TestTreesAreChanged(t *testing.T) {
	f, dir := guestFiles(t)
	ctx := t.Context()
	for i, err := range []error{
		f.Mkdir(ctx, dir+"/a/b/c", agentclient.MkdirOptions{Parents: true, Mode: 0o733 | fs.ModeSticky}),
		f.Mkdir(ctx, dir+"/a/b/c", agentclient.MkdirOptions{Parents: true}),
		f.Symlink(ctx, "../x", dir+"/a/l"),
		f.Chmod(ctx, dir+"/a/b", 0o700|fs.ModeSetgid),
		f.Chown(ctx, dir+"/a/l", agentclient.Owner{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}),
		f.Rename(ctx, dir+"/a/b", dir+"/a/n"),
	} {
		if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	list, err := f.ReadDir(ctx, dir+"/a")
	if err != nil || len(list) != 2 || list[0].Name() != "l" || list[0].Target != "../x" || list[1].Name() != "n" ||
		list[1].Mode() != fs.ModeDir|0o700|fs.ModeSetgid {
		t.Errorf("got %+v, %v", list, err)
	}
	if st, err := f.Stat(ctx, dir+"/a/n/c", false); err != nil || st.Mode() != fs.ModeDir|0o733|fs.ModeSticky {
		t.Errorf("got %+v, %v", st, err)
	}
	if err := f.Remove(ctx, dir+"/a", true); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(ctx, dir+"/a", false); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestI12_NamesMayHaveAnyBytes: a guest's names need not be UTF-8, and none of them ends the session.
func TestI12_NamesMayHaveAnyBytes(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		const odd = "a\xff\xfe"
		watched, stop := context.WithCancel(t.Context())
		defer stop()
		ready, created, ended := make(chan struct{}), make(chan string, 10), make(chan error, 1)
		go func() {
			ended <- f.Watch(watched, dir, false, func() { close(ready) }, func(e agentclient.Event) { created <- e.Path })
		}()
		<-ready
		if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, odd), 0o600), os.Symlink(odd+"\xfd", filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		if at := <-created; at != dir+"/"+odd {
			t.Errorf("watched %q", at)
		}
		stop()
		<-ended
		all, err := f.ReadDir(t.Context(), dir)
		if err != nil || len(all) != 2 || all[0].Name() != odd || all[1].Target != odd+"\xfd" {
			t.Errorf("listed %+v, %v", all, err)
		}
		in, err := f.Pack(t.Context(), dir, "x", false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, in)
		_ = in.Close()
		if left := in.Report().Skipped; err != nil || len(left) != 1 || !strings.HasPrefix(filepath.Base(left[0]), "a") {
			t.Errorf("packed without %q, %v", left, err)
		}
		if _, err := f.Stat(t.Context(), dir+"/"+odd, false); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("a path that can't be sent: %v", err)
		}
		if _, err := f.Stat(t.Context(), dir, false); err != nil {
			t.Errorf("behind these: %v", err)
		}
	})
}

func TestGuestFilesAreAnFS(t *testing.T) {
	f, dir := guestFiles(t)
	for name, text := range map[string]string{"a.txt": "alpha", "d/b.txt": "beta", "d/e/c": strings.Repeat("c", 100_000)} {
		if err := os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := fstest.TestFS(f.FS(t.Context(), dir), "a.txt", "d/b.txt", "d/e/c"); err != nil {
		t.Error(err)
	}
}

// TestArchivesLeaveOutTheKernelsFiles: reading all of /proc has effects, and no end.
func TestArchivesLeaveOutTheKernelsFiles(t *testing.T) {
	f, dir := guestFiles(t)
	if err := os.MkdirAll(dir+"/src/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc", dir+"/src/proc", "", unix.MS_BIND, ""); err != nil {
		t.Skipf("no mount can be made here: %v", err)
	}
	defer func() { _ = unix.Unmount(dir+"/src/proc", unix.MNT_DETACH) }()
	a, err := f.Pack(t.Context(), dir+"/src", "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for r := tar.NewReader(a); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || h.Name != "src/" && h.Name != "src/proc/" {
			t.Fatalf("%+v, %v", h, err)
		}
	}
}

func TestArchivesGoInAndOut(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		big := strings.Repeat("x", 700_000)
		if err := os.MkdirAll(dir+"/src/d", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/src/d/big", []byte(big), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("src", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir+"/dst", 0o755); err != nil {
			t.Fatal(err)
		}
		a, err := f.Pack(t.Context(), dir+"/link", "named", true)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		r, err := f.Unpack(t.Context(), dir+"/dst", a, &agentclient.Owner{})
		if err != nil || r.Entries != 3 || r.Bytes != 700_000 || a.Report().Entries != 3 {
			t.Errorf("got %+v of %+v, %v", r, a.Report(), err)
		}
		if b, err := os.ReadFile(dir + "/dst/named/d/big"); err != nil || string(b) != big {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})
}

// TestPaddingOfArchivesIsRead: tar pads what it writes, and would end with an error if nobody read it.
func TestPaddingOfArchivesIsRead(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Mode: 0o600}), w.Close()); err != nil {
			t.Fatal(err)
		}
		padding := bytes.NewReader(make([]byte, 5*transfer.Slots*transfer.PieceBytes))
		r, err := f.Unpack(t.Context(), dir, io.MultiReader(&archive, padding), &agentclient.Owner{})
		if err != nil || r.Entries != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if n := padding.Len(); n > 0 {
			t.Errorf("%d bytes of the padding were not read", n)
		}
	})
}

// TestChangedFilesComeWithAnError: the agent waits for its window when the file becomes shorter.
func TestChangedFilesComeWithAnError(t *testing.T) {
	eachWay(t, func(t *testing.T, f *agentclient.Files, dir string) {
		const size = 3 * transfer.Slots * transfer.PieceBytes
		if err := os.WriteFile(dir+"/log", make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := f.Pack(t.Context(), dir+"/log", "", false)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := os.Truncate(dir+"/log", 1); err != nil {
			t.Fatal(err)
		}
		in := tar.NewReader(a)
		if _, err := in.Next(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, in); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if _, err := in.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("the archive does not end: %v", err)
		}
		if _, err := io.Copy(io.Discard, a); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), "log: changed while") {
			t.Errorf("at its end: %v", err)
		}
	})
}

func TestWatchSeesEveryChange(t *testing.T) {
	f, dir := guestFiles(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, ready, done := make(chan agentclient.Event, 1000), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, dir, true, func() { close(ready) }, func(e agentclient.Event) { events <- e })
	}()
	<-ready
	// What is below a new directory is reported once the directory is, so each step waits for the one before.
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return os.Mkdir(dir+"/d", 0o755) }, "created /d"},
		{func() error { return os.WriteFile(dir+"/d/f", []byte("x"), 0o600) }, "created /d/f"},
		{func() error { return os.WriteFile(dir+"/d/f", []byte("y"), 0o600) }, "written /d/f"},
		{func() error { return os.Rename(dir+"/d", dir+"/e") }, "removed /d"},
		{func() error { return nil }, "created /e"},
		{func() error { return nil }, "created /e/f"},
		{func() error { return os.Chmod(dir+"/e/f", 0o644) }, "attributes /e/f"},
		{func() error { return os.Remove(dir + "/e/f") }, "removed /e/f"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		wait := time.After(time.Minute)
		for got := ""; got != step.want; {
			select {
			case e := <-events:
				got = e.Change.String() + " " + strings.TrimPrefix(e.Path, dir)
			case <-wait:
				t.Fatalf("%s was not reported", step.want)
			}
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestI11_FileCallsAreBounded(t *testing.T) {
	s := dial(t, agentclient.Options{}, func(s *server) { s.files.slots = make(chan struct{}, 2) })
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		ready := make(chan struct{})
		go func() {
			ended <- s.Files().Watch(ctx, dir, false, func() { close(ready) }, func(agentclient.Event) {})
		}()
		<-ready
	}
	if _, err := s.Files().Stat(t.Context(), dir, true); !errors.Is(err, agentclient.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	cancel()
	<-ended
	<-ended
	eventually(t, "a slot is free again", func() bool {
		_, err := s.Files().Stat(t.Context(), dir, true)
		return err == nil
	})
}

func TestFilesComeAfterTheHandshake(t *testing.T) {
	s := newSession(t)
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.host, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = agentpb.NewFilesClient(conn).Stat(t.Context(), &agentpb.StatRequest{Path: "/"})
	wantCode(t, "stat", err, codes.FailedPrecondition)
}
