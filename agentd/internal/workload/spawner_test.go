//go:build linux

package workload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newSpawner(t *testing.T) *Spawner {
	t.Helper()
	thread, reaper := NewThread(), NewReaper(false)
	t.Cleanup(func() {
		thread.Close()
		reaper.Close()
	})
	return NewSpawner(thread, reaper)
}

// newSpawnerApart has a mount namespace of its own, as the workload's has.
func newSpawnerApart(t *testing.T) *Spawner {
	t.Helper()
	s := newSpawner(t)
	var err error
	s.thread.Do(func() {
		if err = unix.Unshare(unix.CLONE_NEWNS); err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
	})
	if err != nil {
		t.Skip("no mount namespace can be made here: ", err)
	}
	return s
}

// mount mounts something where s starts processes.
func (s *Spawner) mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	var err error
	if s.thread.Do(func() { err = unix.Mount(source, target, kind, flags, "") }); err != nil {
		t.Fatal(err)
	}
}

// output runs a command to its end.
func (s *Spawner) output(t *testing.T, c Command) (string, syscall.WaitStatus) {
	t.Helper()
	p, err := s.Start(c)
	if err != nil {
		t.Fatalf("%q: %v", c.Argv, err)
	}
	out, _ := io.ReadAll(p.Stdout) // a terminal ends with an error
	<-p.Done()
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
	return strings.ReplaceAll(string(out), "\r", ""), p.Status()
}

func shell(line string) Command { return Command{Argv: []string{"sh", "-c", line}} }

// TestProcessesAreInTheirUsersGroups: in all that the image's list has the user in, unless a group was given, and the owners
// of their terminals.
func TestProcessesAreInTheirUsersGroups(t *testing.T) {
	s := newSpawnerApart(t)
	for name, text := range map[string]string{"/etc/passwd": "web:x:33:34::/srv:/bin/false\n", "/etc/group": "docker:x:998:web\nlogs:x:997:x,web\n"} {
		file := filepath.Join(t.TempDir(), "f")
		write(t, file, text)
		s.mount(t, file, name, "", unix.MS_BIND)
	}
	for user, want := range map[string]string{"web": "33 34 997 998 /srv\n", "web:logs": "33 997 /srv\n", "": "0 0 /root\n"} {
		c := shell("echo $(id -u) $(id -G) $HOME")
		c.User = user
		if got, _ := s.output(t, c); got != want {
			t.Errorf("%q: %q, want %q", user, got, want)
		}
	}
	c := shell("stat -Lc '%u %g' /proc/self/fd/0; echo $TERM > /dev/tty")
	c.User, c.TTY, c.Dir = "web", true, "/"
	if got, _ := s.output(t, c); got != "33 5\nxterm\n" {
		t.Errorf("a terminal: %q", got)
	}
	var owner Owner
	if err := s.Root().Run(func() (err error) { owner, err = LookupOwner("web"); return err }); err != nil || owner != (Owner{UID: 33, GID: 34, Home: "/srv"}) {
		t.Errorf("%+v, %v", owner, err)
	}
}

// TestProcessesGetTheirEnvironment: what is missing is added, what was given stays.
func TestProcessesGetTheirEnvironment(t *testing.T) {
	t.Parallel()
	s := newSpawner(t)
	for _, c := range []struct {
		env, want []string
		tty       bool
	}{
		{nil, []string{"HOME=/", "PATH=" + defaultPath}, false},
		{nil, []string{"HOME=/", "PATH=" + defaultPath, "TERM=xterm"}, true},
		{[]string{"TERM=x", "HOME=/own", "A=b"}, []string{"A=b", "HOME=/own", "PATH=" + defaultPath, "TERM=x"}, true},
	} {
		program, err := filepath.EvalSymlinks("/usr/bin/env")
		if err != nil {
			t.Skip(err)
		}
		user := fmt.Sprint(os.Getuid())
		if os.Getuid() == 0 {
			user = "54321"
		}
		out, _ := s.output(t, Command{Argv: []string{program}, Env: c.env, TTY: c.tty, User: user})
		got := strings.Split(strings.TrimSpace(out), "\n")
		if slices.Sort(got); os.Getuid() == 0 && !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestProgramsAreFoundAsByShells: parts of PATH that are relative or empty, and names with a slash, begin at the working
// directory; any of the three x bits makes a program.
func TestProgramsAreFoundAsByShells(t *testing.T) {
	t.Parallel()
	s := newSpawner(t)
	dir := t.TempDir()
	for _, name := range []string{"here", "below/there"} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho found $0\n")
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, path, want string }{
		{"here", "/nowhere:", dir + "/here"},
		{"here", "::/nowhere", dir + "/here"},
		{"there", "/nowhere:below", dir + "/below/there"},
		{"below/there", "/nowhere", dir + "/below/there"},
		{"./here", "/nowhere", dir + "/here"},
		{"here", "/nowhere", ""},
		{"there", "", ""},
	} {
		p, err := s.Start(Command{Argv: []string{c.name}, Env: []string{"PATH=" + c.path}, Dir: dir})
		if se := (*StartError)(nil); c.want == "" {
			if !errors.As(err, &se) || se.Code() != 127 {
				t.Errorf("%+v: got %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		out, _ := io.ReadAll(p.Stdout)
		<-p.Done()
		_, _ = p.Stdout.Close(), p.Stderr.Close()
		if string(out) != "found "+c.want+"\n" {
			t.Errorf("%+v: %q", c, out)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(filepath.Join(dir, "here"), 0o455); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.output(t, Command{Argv: []string{dir + "/here"}}); !strings.HasPrefix(out, "found") {
			t.Errorf("one of others: %q", out)
		}
	}
	_, err := s.Start(Command{Argv: []string{"/bin/true", strings.Repeat("x", 1<<20)}})
	if se := (*StartError)(nil); !errors.As(err, &se) || se.Code() != 126 {
		t.Errorf("too long an argument: %v", err)
	}
}

// TestWorkingDirectoriesAreMadeForAll users, and stay mounted no longer than their processes need them.
func TestWorkingDirectoriesAreMadeForAll(t *testing.T) {
	s := newSpawnerApart(t)
	top := t.TempDir()
	s.mount(t, "tmpfs", top, "tmpfs", 0)
	defer unix.Umask(unix.Umask(0o022))
	c := shell("pwd; stat -c %a . ..")
	c.Dir, c.MakeDir = top+"/a/b", true
	if got, _ := s.output(t, c); got != c.Dir+"\n755\n755\n" {
		t.Errorf("got %q", got)
	}
	var err error
	if s.thread.Do(func() { err = unix.Unmount(top, 0) }); err != nil {
		t.Errorf("behind the process, its file system can't be unmounted: %v", err)
	}
}

// TestEveryLimitIsTheOneItsNameSays, and the one that can't be set leaves no process.
func TestEveryLimitIsTheOneItsNameSays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root raises limits")
	}
	s := newSpawner(t)
	rows := map[string]string{
		"as": "Max address space", "core": "Max core file size", "cpu": "Max cpu time", "data": "Max data size", "fsize": "Max file size",
		"locks": "Max file locks", "memlock": "Max locked memory", "msgqueue": "Max msgqueue size", "nice": "Max nice priority",
		"nofile": "Max open files", "nproc": "Max processes", "rss": "Max resident set", "rtprio": "Max realtime priority",
		"rttime": "Max realtime timeout", "sigpending": "Max pending signals", "stack": "Max stack size",
	}
	own, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Argv: []string{"cat", "/proc/self/limits"}}
	want := map[string][]string{}
	for name, row := range rows {
		l := Rlimit{Name: "RLIMIT_" + strings.ToUpper(name), Soft: 1<<32 + uint64(len(want)), Hard: 1<<33 + uint64(len(want))}
		if most, err := strconv.ParseUint(limitsOf(t, own, row)[1], 10, 64); err == nil && most < l.Hard { // not every root raises its own
			most -= min(most, uint64(len(want)))
			l = Rlimit{Name: name, Soft: most, Hard: most} // both alike is allowed
		}
		c.Rlimits, want[row] = append(c.Rlimits, l), []string{fmt.Sprint(l.Soft), fmt.Sprint(l.Hard)}
	}
	out, _ := s.output(t, c)
	for row, values := range want {
		if got := limitsOf(t, []byte(out), row); !slices.Equal(got, values) {
			t.Errorf("%s: %q, want %q", row, got, values)
		}
	}
	before := childrenOf(t, os.Getpid())
	if _, err := s.Start(Command{Argv: []string{"sleep", "1000"}, Rlimits: []Rlimit{{"nofile", 1, 1 << 40}}}); !errors.Is(err, ErrRequest) {
		t.Errorf("got %v", err)
	}
	for _, pid := range childrenOf(t, os.Getpid()) {
		if !slices.Contains(before, pid) {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// limitsOf are the soft and the hard limit of a row.
func limitsOf(t *testing.T, limits []byte, row string) []string {
	t.Helper()
	_, rest, _ := strings.Cut(string(limits), row)
	line, _, _ := strings.Cut(rest, "\n")
	f := strings.Fields(line)
	if len(f) < 2 {
		t.Fatalf("%q has no %s", limits, row)
	}
	return f[:2]
}

func childrenOf(t *testing.T, parent int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		b, _ := os.ReadFile(file) // it may have ended
		_, rest, _ := strings.Cut(string(b), ") ")
		var state string
		var pid, of int
		if _, err := fmt.Sscan(rest, &state, &of); err == nil && of == parent {
			if _, err := fmt.Sscan(filepath.Base(filepath.Dir(file)), &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestI14_StagesComeBeforeWhatOthersServe: a program on a mount of its own may be a directory of the host, which the agent
// itself carries. The twin is on the root's disk. The stage is a program that shows what it is to become.
func TestI14_StagesComeBeforeWhatOthersServe(t *testing.T) {
	s := newSpawnerApart(t)
	echo, err := os.Open("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	script := func() {
		write(t, file, "#!/bin/sh\necho itself\n")
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script()
	c := Command{Argv: []string{file, "x"}, Stage: echo}
	if st, other := (unix.Statx_t{}), (unix.Statx_t{}); unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID, &st) != nil ||
		unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &other) != nil || st.Mnt_id != other.Mnt_id {
		t.Skip("temporary files are on another mount than the root")
	}
	if got, _ := s.output(t, c); got != "itself\n" {
		t.Errorf("on the root's disk: %q", got)
	}
	copied, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.mount(t, "tmpfs", dir, "tmpfs", 0)
	if err := s.Root().Run(func() error { return os.WriteFile(file, copied, 0o755) }); err != nil {
		t.Fatal(err)
	}
	if got, want := first(s.output(t, c)), file+" "+file+" x\n"; got != want {
		t.Errorf("on another mount: %q, want %q", got, want)
	}
	program, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	c.Program = program
	if got, _ := s.output(t, c); got != "" {
		t.Errorf("a program of the agent's own: %q", got)
	}
}

func first(s string, _ syscall.WaitStatus) string { return s }

// TestI14_WorkInRootsStaysThere: what runs in a root sees its mounts, and no other goroutine gets the thread that did.
func TestI14_WorkInRootsStaysThere(t *testing.T) {
	s := newSpawnerApart(t)
	dir := t.TempDir()
	s.mount(t, "tmpfs", dir, "tmpfs", 0)
	var tid int
	wrong := errors.New("what the work says")
	err := s.Root().Run(func() error {
		tid = unix.Gettid()
		return errors.Join(os.WriteFile(filepath.Join(dir, "in"), nil, 0o600), wrong)
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("outside there are %v, %v", all, err)
	}
	if got, _ := s.output(t, Command{Argv: []string{"ls", dir}}); got != "in\n" {
		t.Errorf("inside there is %q", got)
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the thread goes on")
		}
	}
}

// TestProcessesAreInTheirControlGroup from their start.
func TestProcessesAreInTheirControlGroup(t *testing.T) {
	b := newBench(t)
	g, err := b.cgroups.New()
	if err != nil {
		t.Fatal(err)
	}
	thread := NewThread()
	defer thread.Close()
	p, err := NewSpawner(thread, b.reaper).Start(Command{Argv: []string{"sleep", "1000"}, Cgroup: g})
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Procs(10); err != nil || !slices.Equal(pids, []int{p.PID}) {
		t.Errorf("%v, %v", pids, err)
	}
	g.Kill()
	p.SignalGroup(syscall.SIGKILL)
	<-p.Done()
	_, _ = p.Stdout.Close(), p.Stderr.Close()
	if err := g.Settle(time.Minute); err != nil {
		t.Error(err)
	}
	g.Close()
}
