//go:build linux && amd64

package qemu

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const shareTestBytes = 1 << 20

// savedMemory is a template in a directory whose path is longer than a socket's address, and sealed memory of it.
func savedMemory(t *testing.T) (*share, *os.File) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "warm-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := shareOf(f.Name(), f, shareTestBytes)
	if err != nil {
		t.Fatal(err)
	}
	return s, sharedMemory(t, shareTestBytes, seals)
}

func sharedMemory(t *testing.T, size int64, with int) *os.File {
	t.Helper()
	memory, err := newMemory("memory", size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memory.WriteAt([]byte("saved"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, with); err != nil {
		t.Fatal(err)
	}
	return memory
}

// lend lends memory until the returned function is called.
func lend(t *testing.T, s *share, memory *os.File) (end func()) {
	t.Helper()
	done := make(chan struct{})
	if err := s.lend(memory, done); err != nil {
		t.Fatal(err)
	}
	var ended bool
	end = func() {
		if !ended {
			ended = true
			close(done)
		}
	}
	t.Cleanup(end)
	return end
}

func sockets(t *testing.T, s *share) []string {
	t.Helper()
	list, err := filepath.Glob(s.path + shareInfix + "*")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestMemoryIsLentUntilTheMachineEnds(t *testing.T) {
	t.Parallel()
	s, memory := savedMemory(t)
	if got, err := s.borrow(); err == nil {
		t.Fatal(got.Name(), "before anybody lends it")
	}
	var want unix.Stat_t
	if err := unix.Fstat(int(memory.Fd()), &want); err != nil {
		t.Fatal(err)
	}
	end := lend(t, s, memory)
	for range 3 {
		got, err := s.borrow()
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(got.Fd()), &st); err != nil || st.Ino != want.Ino {
			t.Errorf("it is another file: %v", err)
		}
		if flags, err := unix.FcntlInt(got.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Error("programs that are started would have it", err)
		}
		_ = got.Close()
	}
	end()
	for open := true; open || len(sockets(t, s)) > 0; time.Sleep(time.Millisecond) { // until the test's time is over
		_, err := memory.Stat()
		open = err == nil
	}
	if _, err := s.borrow(); err == nil {
		t.Error("it is lent on")
	}
}

// TestI18_MemoryOfOthersIsJudged: what another process hands over is used only if nobody can change it, and if it is of the
// same template.
func TestI18_MemoryOfOthersIsJudged(t *testing.T) {
	t.Parallel()
	sealedWith := func(size int64, with int) func(t *testing.T) *os.File {
		return func(t *testing.T) *os.File { t.Helper(); return sharedMemory(t, size, with) }
	}
	for name, tt := range map[string]struct {
		change func(s *share)
		memory func(t *testing.T) *os.File
	}{
		"not sealed":          {memory: sealedWith(shareTestBytes, 0)},
		"writable":            {memory: sealedWith(shareTestBytes, seals&^unix.F_SEAL_WRITE)},
		"shrinkable":          {memory: sealedWith(shareTestBytes, seals&^unix.F_SEAL_SHRINK)},
		"growable":            {memory: sealedWith(shareTestBytes, seals&^unix.F_SEAL_GROW)},
		"of another size":     {memory: sealedWith(shareTestBytes+4096, seals)},
		"of another template": {change: func(s *share) { s.key[31]++ }},
		"a plain file": {memory: func(t *testing.T) *os.File {
			t.Helper()
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(shareTestBytes); err != nil {
				t.Fatal(err)
			}
			return f
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, memory := savedMemory(t)
			if tt.memory != nil {
				_ = memory.Close()
				memory = tt.memory(t)
			}
			theirs := *s
			if tt.change != nil {
				tt.change(&theirs)
			}
			lend(t, &theirs, memory)
			if got, err := s.borrow(); err == nil {
				t.Errorf("%s was taken", got.Name())
			}
		})
	}
}

// TestOneDescriptorIsTakenOfSeveral: others that come with it would stay open here.
func TestOneDescriptorIsTakenOfSeveral(t *testing.T) {
	t.Parallel()
	s, memory := savedMemory(t)
	defer memory.Close()
	second, err := newMemory("second-descriptor", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	theirs := os.NewFile(uintptr(fds[0]), "theirs")
	conn, err := net.FileConn(theirs)
	if err := errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := unix.Sendmsg(fds[1], s.key[:], unix.UnixRights(int(memory.Fd()), int(second.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	got, err := s.take(conn.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "second-descriptor") {
			open++
		}
	}
	if open != 1 {
		t.Errorf("the second one is open %d times", open)
	}
}

// TestI18_MemoryOfFormerTemplatesIsNotTaken: the state of a template that was made again is that of another machine, under the
// same name. The twin is the template as it was.
func TestI18_MemoryOfFormerTemplatesIsNotTaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(path string) error
		taken  bool
	}{
		"as it was": {func(string) error { return nil }, true},
		"made again": {func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		}, false},
		"written to": {func(path string) error { return os.Truncate(path, 1) }, false},
	} {
		s, memory := savedMemory(t)
		lend(t, s, memory)
		if err := tt.change(s.path); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(s.path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		now, err := shareOf(s.path, f, shareTestBytes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := now.borrow()
		if err == nil {
			_ = got.Close()
		}
		if (err == nil) != tt.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProcessesThatHandNothingOver: who is asked may be stopped, gone or broken. The memory is read from the disk then.
func TestProcessesThatHandNothingOver(t *testing.T) {
	t.Parallel()
	s, memory := savedMemory(t)
	at := func(name string) string {
		dir, err := os.Open(filepath.Dir(s.path))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dir.Close() })
		return within107(dir, filepath.Base(s.path)+shareInfix+name)
	}
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at(name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	listen("stopped")
	for _, name := range []string{"gone1", "gone2", "gone3", "gone4", "gone5"} {
		_ = listen(name).Close()
	}
	for _, name := range []string{"link1", "link2", "link3", "link4", "link5"} {
		if err := os.Symlink("nothing", s.path+shareInfix+name); err != nil {
			t.Fatal(err)
		}
	}
	_ = listen("new").Close() // as between bind and listen
	for _, path := range sockets(t, s) {
		if filepath.Base(path) == filepath.Base(s.path)+shareInfix+"new" {
			continue
		}
		past := unix.NsecToTimespec(time.Now().Add(-2 * leftAfter).UnixNano())
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{past, past}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	silent := listen("silent")
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(make([]byte, 32)) // without a descriptor
			_ = conn.Close()
		}
	}()
	if got, err := s.borrow(); err == nil {
		t.Fatalf("got %s", got.Name())
	}
	if left := sockets(t, s); len(left) != 3 {
		t.Errorf("left are %v, want those of a stopped process, a silent one and a new one", left)
	}
	lend(t, s, memory)
	got, err := s.borrow()
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Close()
}

// TestI11_BorrowersKeepNoOtherDescriptors: a process hands over more than one. The twin hands over one.
func TestI11_BorrowersKeepNoOtherDescriptors(t *testing.T) {
	t.Parallel()
	for more := range 4 {
		s, memory := savedMemory(t)
		rights := []int{int(memory.Fd())}
		var readers, writers []*os.File
		for range more {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			readers, writers = append(readers, r), append(writers, w)
			rights = append(rights, int(w.Fd()))
		}
		sent := handOver(t, s, rights)
		got, err := s.borrow()
		if e := <-sent; e != nil || err != nil && more == 0 {
			t.Errorf("%d more: %v; sent: %v", more, err, e)
		}
		if err == nil {
			_ = got.Close()
		}
		for _, f := range append(writers, memory) {
			_ = f.Close()
		}
		for _, r := range readers { // which end once nobody has the other end
			if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%d more: one is left open: %v", more, err)
			}
			_ = r.Close()
		}
	}
}

// handOver answers one process with the right key and these descriptors.
func handOver(t *testing.T, s *share, rights []int) (sent <-chan error) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: within107(dir, filepath.Base(s.path)+shareInfix+"x"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	done := make(chan error, 1)
	go func() {
		defer l.Close()
		conn, err := l.AcceptUnix()
		if err == nil {
			_, _, err = conn.WriteMsgUnix(s.key[:], unix.UnixRights(rights...), nil)
			_ = conn.Close()
		}
		done <- err
	}()
	return done
}

// TestLendersThatFailAreAskedNoMore: a socket that nobody accepts connections from would hold up every start.
func TestLendersThatFailAreAskedNoMore(t *testing.T) {
	t.Parallel()
	s, memory := savedMemory(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // as without descriptors
		t.Fatal(err)
	}
	ended := false
	s.serve(l, memory, func() { ended = l.Close() == nil })
	if _, err := memory.Stat(); !ended || err == nil {
		t.Errorf("the socket is left %t, the memory %v", !ended, err)
	}
}

func TestOldTemplatesTakeTheirSocketsAlong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range maxTemplates + 1 {
		for _, suffix := range []string{"", shareInfix + "x"} {
			if err := os.WriteFile(filepath.Join(dir, templatePrefix+string(rune('a'+i))+suffix), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	New(Config{CacheDir: dir}).dropOld(filepath.Join(dir, templatePrefix+"a"))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2*maxTemplates {
		t.Errorf("%d files, %v: %v", len(left), err, left)
	}
}
