package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// posixCase does something in an empty directory and says what went another way than POSIX and Linux say.
type posixCase struct {
	name string
	do   func(dir string) error
}

// posixCases are those of pjdfstest that apply to a user's files, and what tools do besides. Each holds on any file system
// of Linux. pjdfstest itself is in no package, and would run hours in an emulated guest.
var posixCases = []posixCase{
	{"open", posixOpen}, {"names", posixNames}, {"directories", posixDirectories}, {"rename", posixRename}, {"links", posixLinks},
	{"modes", posixModes}, {"owners", posixOwners}, {"sizes", posixSizes}, {"times", posixTimes}, {"removed", posixRemoved},
	{"append", posixAppend}, {"list", posixList}, {"map", posixMap}, {"locks", posixLocks}, {"deep", posixDeep},
}

// checkPOSIX runs all cases below dir.
func checkPOSIX(dir string) error {
	unix.Umask(0o022)
	var all []error
	for _, c := range posixCases {
		own := filepath.Join(dir, c.name)
		err := os.MkdirAll(own, 0o755)
		if err == nil {
			err = c.do(own)
		}
		if err == nil {
			err = os.RemoveAll(own)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(all...)
}

// TestPOSIXCasesHoldOnThisMachine runs the cases where they must hold.
func TestPOSIXCasesHoldOnThisMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners are for root to change")
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	if err := checkPOSIX(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// expect collects what went another way.
type expect struct{ errs []error }

func (e *expect) err(what string, got, want error) {
	if !errors.Is(got, want) {
		e.errs = append(e.errs, fmt.Errorf("%s: got %w, want %w", what, orNone(got), orNone(want)))
	}
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func (e *expect) that(what string, ok bool) {
	if !ok {
		e.errs = append(e.errs, errors.New(what))
	}
}

func (e *expect) done() error { return errors.Join(e.errs...) }

func (e *expect) stat(path string) unix.Stat_t {
	var st unix.Stat_t
	e.err("stat "+path, unix.Lstat(path, &st), nil)
	return st
}

func (e *expect) open(path string, flags int) int {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	e.err("open "+path, err, nil)
	return fd
}

func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func (e *expect) put(path, text string) {
	e.err("write "+path, os.WriteFile(path, []byte(text), 0o644), nil)
}

func (e *expect) has(path, want string) {
	b, err := os.ReadFile(path)
	e.err("read "+path, err, nil)
	e.that(fmt.Sprintf("%s has %.40q, want %.40q", path, b, want), string(b) == want)
}

func posixOpen(d string) error {
	var e expect
	e.put(d+"/f", "text")
	e.err("mkdir", os.Mkdir(d+"/d", 0o755), nil)
	for _, err := range []error{os.Symlink("loop", d+"/loop"), os.Symlink("f", d+"/s"), os.Symlink("nowhere", d+"/dangling")} {
		e.err("symlink", err, nil)
	}
	e.err("what is missing", opens(d+"/missing", unix.O_RDONLY), unix.ENOENT)
	e.err("through a file", opens(d+"/f/x", unix.O_RDONLY), unix.ENOTDIR)
	e.err("exclusively, a file", opens(d+"/f", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR), unix.EEXIST)
	e.err("exclusively, a link", opens(d+"/dangling", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR), unix.EEXIST)
	e.err("a directory to write", opens(d+"/d", unix.O_WRONLY), unix.EISDIR)
	e.err("a file as a directory", opens(d+"/f", unix.O_DIRECTORY), unix.ENOTDIR)
	e.err("a link unfollowed", opens(d+"/s", unix.O_NOFOLLOW), unix.ELOOP)
	e.err("a loop", opens(d+"/loop", unix.O_RDONLY), unix.ELOOP)
	e.err("through a dangling link", opens(d+"/dangling", unix.O_CREAT|unix.O_WRONLY), nil)
	e.stat(d + "/nowhere")
	e.err("truncated", opens(d+"/s", unix.O_WRONLY|unix.O_TRUNC), nil)
	e.has(d+"/f", "")
	fd := e.open(d+"/f", unix.O_RDONLY)
	_, err := unix.Write(fd, []byte("x"))
	e.err("write to what is read", err, unix.EBADF)
	_ = unix.Close(fd)
	return e.done()
}

func posixNames(d string) error {
	var e expect
	long := strings.Repeat("n", 255)
	names := []string{long, "Name", "name", "NAME", "with space", "new\nline", "-dash", "\xff\xfe", "\u00e9", "e\u0301", "\u212a", "K", "日本語", "a\\b", "*", "tail. ", "..a"}
	for _, n := range names {
		e.put(d+"/"+n, n)
	}
	for _, n := range names {
		e.has(d+"/"+n, n)
	}
	list, err := os.ReadDir(d)
	e.err("list", err, nil)
	e.that(fmt.Sprintf("%d names of %d", len(list), len(names)), len(list) == len(names))
	e.err("256 bytes", opens(d+"/"+long+"n", unix.O_CREAT|unix.O_WRONLY), unix.ENAMETOOLONG)
	e.err("256 bytes to mkdir", unix.Mkdir(d+"/"+long+"n", 0o755), unix.ENAMETOOLONG)
	e.err("a long path", opens(d+strings.Repeat("/.", 2100), unix.O_RDONLY), unix.ENAMETOOLONG)
	return e.done()
}

func posixDirectories(d string) error {
	var e expect
	e.put(d+"/f", "")
	e.err("mkdir", unix.Mkdir(d+"/d", 0o750), nil)
	e.that("mode of mkdir", e.stat(d+"/d").Mode == unix.S_IFDIR|0o750)
	e.err("mkdir again", unix.Mkdir(d+"/d", 0o755), unix.EEXIST)
	e.err("mkdir over a file", unix.Mkdir(d+"/f", 0o755), unix.EEXIST)
	e.err("mkdir in what is missing", unix.Mkdir(d+"/x/y", 0o755), unix.ENOENT)
	e.err("mkdir in a file", unix.Mkdir(d+"/f/y", 0o755), unix.ENOTDIR)
	e.put(d+"/d/f", "")
	e.err("rmdir of one that holds something", unix.Rmdir(d+"/d"), unix.ENOTEMPTY)
	e.err("rmdir of a file", unix.Rmdir(d+"/f"), unix.ENOTDIR)
	e.err("rmdir of .", unix.Rmdir(d+"/d/."), unix.EINVAL)
	e.err("unlink of a directory", unix.Unlink(d+"/d"), unix.EISDIR)
	e.err("unlink", unix.Unlink(d+"/d/f"), nil)
	e.err("rmdir", unix.Rmdir(d+"/d"), nil)
	e.err("rmdir again", unix.Rmdir(d+"/d"), unix.ENOENT)
	e.err("unlink of what is missing", unix.Unlink(d+"/d"), unix.ENOENT)
	return e.done()
}

func posixRename(d string) error {
	var e expect
	for _, n := range []string{"empty", "full", "dir", "dir/sub"} {
		e.err("mkdir", os.Mkdir(d+"/"+n, 0o755), nil)
	}
	e.put(d+"/full/f", "")
	e.put(d+"/a", "a")
	e.put(d+"/b", "b")
	before := e.stat(d + "/a").Ino
	e.err("over a file", unix.Rename(d+"/a", d+"/b"), nil)
	e.has(d+"/b", "a")
	e.that("the inode stays", e.stat(d+"/b").Ino == before)
	e.err("of what is missing", unix.Rename(d+"/a", d+"/c"), unix.ENOENT)
	e.err("a file over a directory", unix.Rename(d+"/b", d+"/empty"), unix.EISDIR)
	e.err("a directory over a file", unix.Rename(d+"/dir", d+"/b"), unix.ENOTDIR)
	e.err("over a directory that is not empty", unix.Rename(d+"/dir", d+"/full"), unix.ENOTEMPTY)
	e.err("into itself", unix.Rename(d+"/dir", d+"/dir/sub/x"), unix.EINVAL)
	e.err("over an empty directory", unix.Rename(d+"/dir", d+"/empty"), nil)
	e.stat(d + "/empty/sub")
	e.put(d+"/a", "new a")
	e.err("without replacing", unix.Renameat2(unix.AT_FDCWD, d+"/a", unix.AT_FDCWD, d+"/b", unix.RENAME_NOREPLACE), unix.EEXIST)
	e.err("exchanging", unix.Renameat2(unix.AT_FDCWD, d+"/a", unix.AT_FDCWD, d+"/b", unix.RENAME_EXCHANGE), nil)
	e.has(d+"/a", "a")
	e.has(d+"/b", "new a")
	e.err("to another directory", unix.Rename(d+"/b", d+"/empty/sub/b"), nil)
	e.has(d+"/empty/sub/b", "new a")
	e.err("onto itself", unix.Rename(d+"/a", d+"/a"), nil)
	fd := e.open(d+"/a", unix.O_RDWR)
	e.err("of an open file", unix.Rename(d+"/a", d+"/moved"), nil)
	_, err := unix.Pwrite(fd, []byte("A"), 0)
	e.err("write to it", err, nil)
	_ = unix.Close(fd)
	e.has(d+"/moved", "A")
	return e.done()
}

func posixLinks(d string) error {
	var e expect
	e.put(d+"/f", "one")
	e.err("link", unix.Link(d+"/f", d+"/g"), nil)
	e.put(d+"/g", "two")
	e.has(d+"/f", "two")
	f, g := e.stat(d+"/f"), e.stat(d+"/g")
	e.that(fmt.Sprintf("links %d and %d of inodes %d and %d", f.Nlink, g.Nlink, f.Ino, g.Ino), f.Nlink == 2 && f.Ino == g.Ino)
	e.err("link over a file", unix.Link(d+"/f", d+"/g"), unix.EEXIST)
	e.err("link of what is missing", unix.Link(d+"/x", d+"/y"), unix.ENOENT)
	e.err("link of a directory", unix.Link(d, d+"/y"), unix.EPERM)
	e.err("unlink", unix.Unlink(d+"/f"), nil)
	e.that("links after unlink", e.stat(d+"/g").Nlink == 1)
	target := strings.Repeat("t", 3000)
	e.err("symlink", unix.Symlink(target, d+"/s"), nil)
	got, err := os.Readlink(d + "/s")
	e.err("readlink", err, nil)
	e.that("the link's target", got == target && e.stat(d+"/s").Size == 3000)
	e.err("symlink over a file", unix.Symlink("x", d+"/g"), unix.EEXIST)
	_, err = os.Readlink(d + "/g")
	e.err("readlink of a file", err, unix.EINVAL)
	e.err("a relative link", unix.Symlink("g", d+"/r"), nil)
	e.has(d+"/r", "two")
	e.err("replace a link", errors.Join(unix.Symlink("nowhere", d+"/n"), unix.Rename(d+"/n", d+"/r")), nil)
	e.err("what it leads to now", opens(d+"/r", unix.O_RDONLY), unix.ENOENT)
	return e.done()
}

func posixModes(d string) error {
	var e expect
	e.put(d+"/f", "")
	for _, mode := range []uint32{0o000, 0o400, 0o200, 0o100, 0o777, 0o640, 0o755} {
		e.err("chmod", unix.Chmod(d+"/f", mode), nil)
		e.that(fmt.Sprintf("mode %o", mode), e.stat(d+"/f").Mode == unix.S_IFREG|mode)
	}
	e.err("chmod of a directory", unix.Chmod(d, 0o1777), nil)
	e.that("the sticky bit", e.stat(d).Mode == unix.S_IFDIR|0o1777)
	e.err("chmod of what is missing", unix.Chmod(d+"/x", 0o644), unix.ENOENT)
	before := e.stat(d + "/f").Ctim
	time.Sleep(20 * time.Millisecond)
	e.err("chmod", unix.Chmod(d+"/f", 0o600), nil)
	e.that("ctime after chmod", e.stat(d+"/f").Ctim != before)
	fd := e.open(d+"/g", unix.O_CREAT|unix.O_RDWR)
	e.err("fchmod", unix.Fchmod(fd, 0o604), nil)
	_ = unix.Close(fd)
	e.that("mode after fchmod", e.stat(d+"/g").Mode == unix.S_IFREG|0o604)
	return e.done()
}

func posixOwners(d string) error {
	var e expect
	e.put(d+"/f", "")
	e.err("symlink", os.Symlink("f", d+"/s"), nil)
	e.err("chown", unix.Chown(d+"/f", 1234, 2345), nil)
	st := e.stat(d + "/f")
	e.that(fmt.Sprintf("owner %d:%d", st.Uid, st.Gid), st.Uid == 1234 && st.Gid == 2345)
	e.err("chown of the group", unix.Chown(d+"/s", -1, 7), nil)
	st = e.stat(d + "/f")
	e.that(fmt.Sprintf("owner %d:%d through a link", st.Uid, st.Gid), st.Uid == 1234 && st.Gid == 7)
	e.err("lchown", unix.Lchown(d+"/s", 5, 6), nil)
	st = e.stat(d + "/s")
	e.that("the link's owner", st.Uid == 5 && st.Gid == 6 && e.stat(d+"/f").Uid == 1234)
	e.err("rename", unix.Rename(d+"/f", d+"/g"), nil)
	e.that("the owner after a rename", e.stat(d+"/g").Uid == 1234)
	return e.done()
}

func posixSizes(d string) error {
	var e expect
	e.put(d+"/f", "0123456789")
	e.err("shorter", unix.Truncate(d+"/f", 4), nil)
	e.has(d+"/f", "0123")
	e.err("longer", unix.Truncate(d+"/f", 6), nil)
	e.has(d+"/f", "0123\x00\x00")
	e.err("truncate of a directory", unix.Truncate(d, 0), unix.EISDIR)
	e.err("a negative size", unix.Truncate(d+"/f", -1), unix.EINVAL)
	const hole = 64 << 20
	fd := e.open(d+"/sparse", unix.O_CREAT|unix.O_RDWR)
	defer func() { _ = unix.Close(fd) }()
	_, err := unix.Pwrite(fd, []byte("end"), hole)
	e.err("write behind a hole", err, nil)
	st := e.stat(d + "/sparse")
	e.that(fmt.Sprintf("%d bytes in %d blocks", st.Size, st.Blocks), st.Size == hole+3 && st.Blocks*512 < hole/2)
	at, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	e.that(fmt.Sprintf("data at %d, %v", at, err), err == nil && at > hole/2)
	at, err = unix.Seek(fd, 0, unix.SEEK_HOLE)
	e.that(fmt.Sprintf("a hole at %d, %v", at, err), err == nil && at == 0)
	_, err = unix.Seek(fd, hole+10, unix.SEEK_DATA)
	e.err("data behind the end", err, unix.ENXIO)
	b := make([]byte, 8)
	n, err := unix.Pread(fd, b, hole-4)
	e.that(fmt.Sprintf("%q, %v across a hole's end", b[:n], err), string(b[:n]) == "\x00\x00\x00\x00end")
	e.err("fallocate", unix.Fallocate(fd, 0, hole, 4096), nil)
	e.that("size after fallocate", e.stat(d+"/sparse").Size == hole+4096)
	return e.done()
}

func posixTimes(d string) error {
	var e expect
	e.put(d+"/f", "")
	set := func(a, m unix.Timespec) {
		e.err("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, d+"/f", []unix.Timespec{a, m}, 0), nil)
	}
	for _, sec := range []int64{1, 1_000_000_000, 1 << 32, -1000} {
		set(unix.Timespec{Sec: sec, Nsec: 123456789}, unix.Timespec{Sec: sec + 1, Nsec: 987654321})
		st := e.stat(d + "/f")
		e.that(fmt.Sprintf("times %v, %v", st.Atim, st.Mtim), st.Atim == unix.Timespec{Sec: sec, Nsec: 123456789} && st.Mtim == unix.Timespec{Sec: sec + 1, Nsec: 987654321})
	}
	before := e.stat(d + "/f")
	set(unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.Timespec{Nsec: unix.UTIME_NOW})
	st := e.stat(d + "/f")
	e.that("the time that was left out", st.Atim == before.Atim)
	e.that(fmt.Sprintf("now: %v", st.Mtim), time.Since(time.Unix(st.Mtim.Unix())).Abs() < time.Hour)
	set(unix.Timespec{Sec: 5}, unix.Timespec{Sec: 5})
	e.put(d+"/f", "x")
	e.that("mtime after a write", e.stat(d+"/f").Mtim.Sec != 5)
	e.err("utimensat of the directory", unix.UtimesNanoAt(unix.AT_FDCWD, d, []unix.Timespec{{Sec: 5}, {Sec: 5}}, 0), nil)
	e.put(d+"/new", "")
	e.that("the directory's mtime after a file was made", e.stat(d).Mtim.Sec != 5)
	e.err("symlink", os.Symlink("f", d+"/s"), nil)
	e.err("a link's times", unix.UtimesNanoAt(unix.AT_FDCWD, d+"/s", []unix.Timespec{{Sec: 9}, {Sec: 9}}, unix.AT_SYMLINK_NOFOLLOW), nil)
	e.that("a link's time", e.stat(d+"/s").Mtim.Sec == 9 && e.stat(d+"/f").Mtim.Sec != 9)
	return e.done()
}

func posixRemoved(d string) error {
	var e expect
	e.put(d+"/f", "text")
	fd := e.open(d+"/f", unix.O_RDWR)
	defer func() { _ = unix.Close(fd) }()
	e.err("unlink", unix.Unlink(d+"/f"), nil)
	_, err := unix.Pwrite(fd, []byte("more"), 4)
	e.err("write to a removed file", err, nil)
	b := make([]byte, 20)
	n, err := unix.Pread(fd, b, 0)
	e.that(fmt.Sprintf("%q, %v from a removed file", b[:n], err), string(b[:n]) == "textmore")
	var st unix.Stat_t
	e.err("fstat", unix.Fstat(fd, &st), nil)
	e.that(fmt.Sprintf("%d links, %d bytes", st.Nlink, st.Size), st.Nlink == 0 && st.Size == 8)
	e.put(d+"/f", "another")
	n, _ = unix.Pread(fd, b, 0)
	e.that("the removed file is not the new one", string(b[:n]) == "textmore")
	e.has(d+"/f", "another")
	e.put(d+"/g", "old")
	fd2 := e.open(d+"/g", unix.O_RDONLY)
	defer func() { _ = unix.Close(fd2) }()
	e.put(d+"/h", "new")
	e.err("rename", unix.Rename(d+"/h", d+"/g"), nil)
	n, _ = unix.Pread(fd2, b, 0)
	e.that("what was replaced is still read", string(b[:n]) == "old")
	return e.done()
}

func posixAppend(d string) error {
	var e expect
	a, b := e.open(d+"/f", unix.O_CREAT|unix.O_WRONLY|unix.O_APPEND), e.open(d+"/f", unix.O_WRONLY|unix.O_APPEND)
	for i := range 5 {
		for _, fd := range []int{a, b} {
			_, err := unix.Write(fd, []byte{byte('0' + i)})
			e.err("append", err, nil)
		}
	}
	_, _ = unix.Close(a), unix.Close(b)
	e.has(d+"/f", "0011223344")
	return e.done()
}

func posixList(d string) error {
	var e expect
	const many = 300
	for i := range many {
		e.put(fmt.Sprintf("%s/%03d-%s", d, i, strings.Repeat("x", i%60)), "")
	}
	seen := map[string]bool{}
	dir, err := os.Open(d)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
		part, err := dir.Readdirnames(17)
		if len(part) == 0 {
			break
		}
		e.err("readdir", err, nil)
		for _, n := range part {
			e.that(n+" is there twice", !seen[n])
			seen[n] = true
			e.err("unlink", os.Remove(d+"/"+n), nil) // as rm -r does between
		}
	}
	e.that(fmt.Sprintf("%d names of %d", len(seen), many), len(seen) == many)
	left, err := os.ReadDir(d)
	e.that(fmt.Sprintf("%d names are left, %v", len(left), err), len(left) == 0 && err == nil)
	return e.done()
}

func posixMap(d string) error {
	var e expect
	e.put(d+"/f", strings.Repeat("x", 10000))
	fd := e.open(d+"/f", unix.O_RDWR)
	defer func() { _ = unix.Close(fd) }()
	shared, err := unix.Mmap(fd, 0, 10000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	private, err := unix.Mmap(fd, 0, 10000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	private[0] = 'p'
	copy(shared[4094:], "over")
	b := make([]byte, 6)
	_, err = unix.Pread(fd, b, 4093)
	e.that(fmt.Sprintf("%q, %v is read of what was mapped", b, err), string(b) == "xoverx")
	_, err = unix.Pwrite(fd, []byte("W"), 9000)
	e.that("a write is seen where it is mapped", err == nil && shared[9000] == 'W')
	e.err("msync", unix.Msync(shared, unix.MS_SYNC), nil)
	e.err("munmap", errors.Join(unix.Munmap(shared), unix.Munmap(private)), nil)
	e.has(d+"/f", strings.Repeat("x", 4094)+"over"+strings.Repeat("x", 9000-4098)+"W"+strings.Repeat("x", 999))
	return e.done()
}

func posixLocks(d string) error {
	var e expect
	e.put(d+"/f", "")
	a, b := e.open(d+"/f", unix.O_RDWR), e.open(d+"/f", unix.O_RDWR)
	e.err("flock", unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB), nil)
	e.err("flock of another", unix.Flock(b, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	e.err("unlock", unix.Flock(a, unix.LOCK_UN), nil)
	e.err("flock of another then", unix.Flock(b, unix.LOCK_SH|unix.LOCK_NB), nil)
	_, _ = unix.Close(a), unix.Close(b)
	return e.done()
}

func posixDeep(d string) error {
	var e expect
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	defer func() { _ = os.Chdir(back) }()
	e.err("chdir", os.Chdir(d), nil)
	name := strings.Repeat("d", 100)
	const levels = 30 // 3 kB
	for range levels {
		e.err("mkdir", os.Mkdir(name, 0o755), nil)
		e.err("chdir", os.Chdir(name), nil)
	}
	e.put("f", "deep")
	e.has(d+"/"+strings.Repeat(name+"/", levels)+"f", "deep")
	n := 0
	e.err("walk", filepath.WalkDir(d, func(string, fs.DirEntry, error) error { n++; return nil }), nil)
	e.that(fmt.Sprintf("%d entries", n), n == levels+2)
	return e.done()
}
