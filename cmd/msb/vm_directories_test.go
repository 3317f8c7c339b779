//go:build vmtest

package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// programImage is a directory with these programs of this machine, what they are linked with, and a shell.
func programImage(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	add := func(from, to string) {
		t.Helper()
		to = filepath.Join(dir, to)
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add(busybox, "bin/busybox")
	for _, name := range []string{"sh", "cat", "ls", "sha256sum", "mkdir", "mv", "ln", "rm", "stat", "chown", "flock", "touch", "find", "wc", "id", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	passwd := write(t, "passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
	add(passwd, "etc/passwd")
	for _, p := range programs {
		add(p, "bin/"+strings.TrimSuffix(filepath.Base(p), ".test"))
		libs, _ := exec.CommandContext(t.Context(), "ldd", p).Output() // fails on static ones
		for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(libs), -1) {
			add(lib, lib)
		}
	}
	return dir
}

// TestVMDirectoriesOfTheHost works in two directories of this machine, one read-only and one not, from inside.
func TestVMDirectoriesOfTheHost(t *testing.T) {
	programs := map[string]string{}
	for _, name := range []string{"git", "make", "sqlite3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v; scripts/setup --test installs it", err)
		}
		programs[name] = path
	}
	git := programs["git"]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	src, rw := filepath.Join(top, "src"), filepath.Join(top, "rw")
	big := make([]byte, 8<<20)
	_, _ = rand.Read(big)
	for _, err := range []error{
		os.MkdirAll(src+"/deep/er", 0o755), os.Mkdir(rw, 0o755), os.Mkdir(top+"/private", 0o755),
		os.WriteFile(src+"/deep/er/f", []byte("text\n"), 0o600), os.WriteFile(src+"/big", big, 0o600), os.WriteFile(src+"/.env", []byte("KEY=x"), 0o600),
		os.WriteFile(top+"/private/p", []byte("private"), 0o600), os.Symlink("deep/er/f", src+"/in"),
		os.Symlink("../private/p", src+"/up"), os.Symlink(top+"/private/p", src+"/far"), unix.Mkfifo(src+"/fifo", 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "one"}} {
		c := exec.CommandContext(t.Context(), git, append([]string{"-C", src}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	inside := func(script, want string) {
		t.Helper()
		msb("exec", "d", "--", "sh", "-c", "export HOME=/; cd /ro; "+script).want(t, 0, want)
	}
	program := strings.TrimSuffix(filepath.Base(self), ".test")
	use := func(what, file string) result {
		t.Helper()
		return msb("exec", "-e", asFileUser+"="+what, "d", "--", program, file)
	}
	msb("create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", "--hide", ".env", "-v", src+":/ro", "-v", rw+":/work/rw:rw", "d", "dir:"+programImage(t, git, programs["make"], programs["sqlite3"], self)).want(t, 0, "d\n")
	msb("start", "-q", "d").want(t, 0, "d\n")
	defer func() { _ = command(t, home, "rm", "--force", "d").Run() }()

	inside("ls; cat deep/er/f in", "big\ndeep\nfar\nin\nup\ntext\ntext\n")
	inside("sha256sum < big", fmt.Sprintf("%x  -\n", sha256.Sum256(big)))
	inside("git status --short | cat", " D .env\n")
	inside("cat up far .env fifo 2>&1 | wc -l; stat -c %u:%g . big", "4\n0:0\n0:0\n")
	inside("{ echo x > new || rm -f big || mkdir m; } 2>&1 | wc -l; ls | wc -l", "3\n5\n")
	if b, err := os.ReadFile(src + "/big"); err != nil || !bytes.Equal(b, big) {
		t.Errorf("the read-only file changed: %v", err)
	}

	// The agent opens files of the host itself, which it serves to the guest.
	msb("cp", src+"/big", "d:/work/rw/copied").want(t, 0, "")
	msb("cp", "d:/ro/big", top+"/back").want(t, 0, "")
	for _, file := range []string{rw + "/copied", top + "/back"} {
		if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, big) {
			t.Errorf("%s: %d bytes, %v", file, len(b), err)
		}
	}
	msb("exec", "d", "--", "rm", "/work/rw/copied").want(t, 0, "")

	inside("cd /work/rw && echo one > f && mkdir d && mv f d/g && ln -s g d/s && ln d/g d/h && echo two >> d/h && chown user d/g && stat -c %u d/g && cat d/s", "1000\none\ntwo\n")
	if b, err := os.ReadFile(rw + "/d/g"); err != nil || string(b) != "one\ntwo\n" {
		t.Errorf("on the host: %q, %v", b, err)
	}
	if err := os.WriteFile(rw+"/d/g", []byte("of the host, and longer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside("cat /work/rw/d/g; git init -q --template= /work/rw/repo && cd /work/rw/repo && git add . && echo new > n && git add n && git -c user.name=x -c user.email=x@example.com commit -q -m two && git gc -q && git fsck && git status --short && git log --format=%s", "of the host, and longer\ntwo\n")
	use("posix", "/work/rw/posix").want(t, 0, "")
	inside("for kind in 'mkfifo p' 'mknod p c 1 3' 'mknod p b 1 3' 'nc -l -U p'; do busybox $kind 2>/dev/null && echo $kind; done; ls p 2>/dev/null; true", "")

	// Programs of a directory, which the agent itself starts, and an interpreter.
	inside("cd /work/rw && cat /bin/busybox > echo && printf '#!/work/rw/echo by\n' > script && busybox chmod +x echo script", "")
	msb("exec", "d", "--", "/work/rw/echo", "ran").want(t, 0, "ran\n")
	msb("exec", "-w", "/work/rw", "-u", "user", "d", "--", "./script").want(t, 0, "by /work/rw/script\n")
	msb("exec", "d", "--", "/work/rw/d/g").says(t, 126, "not an executable file")

	inside("cd /work/rw && sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1), (2); SELECT sum(a) FROM t;' && sqlite3 db 'SELECT count(*) FROM t'", "wal\n3\n2\n")
	if out, err := exec.CommandContext(t.Context(), programs["sqlite3"], rw+"/db", "INSERT INTO t VALUES (4); PRAGMA integrity_check").CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("the database on the host: %s, %v", out, err)
	}
	inside("cd /work/rw && sqlite3 db 'SELECT sum(a) FROM t'", "7\n")
	// What make is to do again goes by times, which are the host's.
	inside("mkdir /work/rw/made && cd /work/rw/made && printf 'out: in\n\tcat in > out\n' > Makefile && echo one > in && make -s && make && cat out", "make: 'out' is up to date.\none\n")
	if err := os.WriteFile(rw+"/made/in", []byte("of the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside("sleep 1.1; cd /work/rw/made && make -s && cat out", "of the host\n")
	use("map", "/work/rw/mapped").want(t, 0, "")
	if b, err := os.ReadFile(rw + "/mapped"); err != nil || len(b) != 8192 || string(b[4090:4107]) != "over a page's end" {
		t.Errorf("mapped: %d bytes, %v", len(b), err)
	}
	use("exclusive", "/work/rw/mapped").says(t, 1, "file exists")

	f, err := os.OpenFile(rw+"/mapped", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := func(kind int16) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: 1 << 30, Len: 512, Whence: io.SeekStart})
	}
	if err := lock(unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	use("lock", "/work/rw/mapped").says(t, 1, "resource temporarily unavailable")
	if err := lock(unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	use("lock", "/work/rw/mapped").want(t, 0, "locked\n")
	msb("exec", "-d", "--job", "hold", "-e", asFileUser+"=hold", "d", "--", program, "/work/rw/mapped").want(t, 0, "hold\n")
	eventually(t, "the guest's lock", func() bool { return msb("job", "logs", "d", "hold").out == "locked\n" })
	if err := lock(unix.F_WRLCK); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the host's lock: %v", err)
	}

	// What is written last is there after the stop, and the directories after the next start.
	inside("echo last > /work/rw/last", "")
	msb("stop", "d").want(t, 0, "d\n")
	if b, err := os.ReadFile(rw + "/last"); err != nil || string(b) != "last\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := lock(unix.F_WRLCK); err != nil {
		t.Errorf("the host's lock after the stop: %v", err)
	}
	msb("start", "-q", "d").want(t, 0, "d\n")
	inside("cat deep/er/f /work/rw/last; echo x > /work/rw/again", "text\nlast\n")
	msb("stop", "d").want(t, 0, "d\n")
	if err := os.RemoveAll(src); err != nil {
		t.Fatal(err)
	}
	msb("start", "-q", "d").says(t, exitOther, "directory can't be shared", "there is no")
}
