//go:build linux

package hostdir

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate/rotatetest"
)

func TestReadsAndLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("many/%03d-%s", i, strings.Repeat("n", i%200))] = ""
	}
	files["big"] = strings.Repeat("0123456789", 50_000)
	files["d/e/f"] = "deep"
	put(t, dir, files)
	g := newGuest(t, dir, Options{})
	if text, err := g.cat("d", "e", "f"); err != nil || text != "deep" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := g.cat("big"); err != nil || text != files["big"][:maxIO] {
		t.Errorf("%d bytes, %v; want %d", len(text), err, maxIO)
	}
	id := g.must(g.walk("many"))
	for _, op := range []opcode{opReaddir, opReaddirplus} {
		for _, size := range []uint32{600, 4096, maxIO} {
			got := g.list(id, op, size)
			if len(got) != 302 {
				t.Errorf("%d names with %d bytes, want 302", len(got), size)
			}
			for n, node := range got {
				if (node != 0) != (op == opReaddirplus && n != "." && n != "..") {
					t.Fatalf("%s is node %d", n, node)
				}
			}
		}
	}
	_, err := g.walk("none")
	want(t, "lookup", err, unix.ENOENT)
	_, err = g.ask(opGetattr, 4711, make([]byte, 16))
	want(t, "an unknown node", err, unix.ESTALE)
}

// TestI11_RepliesAreBounded: whatever a guest asks for at once, it gets no more than the server said that it gives.
func TestI11_RepliesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{"big": strings.Repeat("x", 3*maxIO)}
	for i := range 1200 {
		files[fmt.Sprintf("many/%04d-%s", i, strings.Repeat("n", 200))] = ""
	}
	put(t, dir, files)
	g := newGuest(t, dir, Options{})
	big := g.must(g.walk("big"))
	fh := g.must(g.open(big, unix.O_RDONLY))
	for _, size := range []uint32{maxIO + 1, 3 * maxIO} {
		if text, err := g.read(big, fh, size); err != nil || text != files["big"][:maxIO] {
			t.Errorf("a read of %d bytes gave %d, %v; want %d", size, len(text), err, maxIO)
		}
	}
	many := g.must(g.walk("many"))
	for _, op := range []opcode{opReaddir, opReaddirplus} {
		b, err := g.ask(opOpendir, many, put32(nil, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		b, err = g.ask(op, many, append(put32(put64(nil, order.Uint64(b), 0), 3*maxIO), make([]byte, 20)...))
		if err != nil || len(b) > maxIO || len(b) < maxIO-1024 {
			t.Errorf("%d: a list in %d bytes gave %d, %v; want at most %d", op, 3*maxIO, len(b), err, maxIO)
		}
	}
}

// TestReadOnlyChangesNothing sends every request that changes something, and its twin shows that they work.
func TestReadOnlyChangesNothing(t *testing.T) {
	t.Parallel()
	for _, writable := range []bool{false, true} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"file": "text", "other": "", "dir/x": ""})
		if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		g := newGuest(t, dir, Options{Writable: writable})
		id := g.must(g.walk("file"))
		check := func(what string, err error) {
			t.Helper()
			if writable && err != nil || !writable && !errors.Is(err, unix.EROFS) {
				t.Errorf("writable %t: %s: %v", writable, what, err)
			}
		}
		ask := func(what string, op opcode, node uint64, body []byte) {
			t.Helper()
			_, err := g.ask(op, node, body)
			check(what, err)
		}
		fh, err := g.open(id, unix.O_RDWR)
		check("open to write", err)
		check("write", g.write(id, fh, 0, "new"))
		_, _, err = g.create(rootID, "made", unix.O_RDWR|unix.O_EXCL)
		check("create", err)
		_, err = g.mkdir(rootID, "newdir")
		check("mkdir", err)
		ask("mknod", opMknod, rootID, append(put32(nil, unix.S_IFREG|0o600, 0, 0, 0), name("node")...))
		ask("symlink", opSymlink, rootID, name("sym", "/etc/passwd"))
		ask("link", opLink, rootID, append(put64(nil, id), name("hard")...))
		ask("chmod", opSetattr, id, append(put32(nil, setMode, 0), make([]byte, 80)...))
		ask("truncate", opSetattr, id, append(put32(nil, setSize, 0), make([]byte, 80)...))
		ask("times", opSetattr, id, append(put32(nil, setMtimeNow|setAtimeNow, 0), make([]byte, 80)...))
		ask("chown", opSetattr, id, append(put32(nil, setUID, 0), make([]byte, 80)...))
		ask("fallocate", opFallocate, id, append(put64(nil, fh, 0, 10), make([]byte, 8)...))
		check("rename", g.rename(rootID, "other", rootID, "renamed", 0))
		ask("old rename", opRename, rootID, append(put64(nil, rootID), name("renamed", "again")...))
		ask("unlink", opUnlink, rootID, name("again"))
		ask("rmdir", opRmdir, rootID, name("empty"))
		if writable {
			continue
		}
		var left []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if b, err2 := os.ReadFile(filepath.Join(dir, "file")); err != nil || err2 != nil || string(b) != "text" || fmt.Sprint(left) != "[dir empty file other]" {
			t.Errorf("the directory holds %v, the file %q; %v, %v", left, b, err, err2)
		}
	}
}

func TestWritesReachTheHostAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newGuest(t, dir, Options{Writable: true})
	id, fh, err := g.create(rootID, "f", unix.O_RDWR|unix.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = g.create(rootID, "f", unix.O_RDWR|unix.O_EXCL)
	want(t, "exclusive", err, unix.EEXIST)
	if err := g.write(id, fh, 3, "text"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "\x00\x00\x00text" {
		t.Errorf("%q, %v", b, err)
	}
	// Its name goes, the open file stays.
	if _, err := g.ask(opUnlink, rootID, name("f")); err != nil {
		t.Fatal(err)
	}
	if text, err := g.read(id, fh, 100); err != nil || text != "\x00\x00\x00text" {
		t.Errorf("%q, %v", text, err)
	}
	if b, err := g.ask(opGetattr, id, make([]byte, 16)); err != nil || order.Uint64(b[24:]) != 7 {
		t.Errorf("getattr of a file without a name: %x, %v", b, err)
	}
	// A new file of that name, perhaps of that inode, is another node.
	again, fh2, err := g.create(rootID, "f", unix.O_RDWR)
	if err != nil || again == id {
		t.Errorf("node %d again, %v", again, err)
	}
	for _, err := range []error{g.close(id, fh), g.close(again, fh2)} {
		if err != nil {
			t.Error(err)
		}
	}
	want(t, "closed", g.close(id, fh), unix.EBADF)
}

// TestOpenFlagsActAsOnHost: of a file that the guest opens or makes with each set of flags, what reads and writes do is
// what they do on the host, where it has become longer meanwhile.
func TestOpenFlagsActAsOnHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags               uint32
		reads, writes, made bool
		text                string // after "X" is written at 0
	}{
		{unix.O_RDONLY, true, false, false, "oldhost"}, {unix.O_WRONLY, false, true, false, "Xldhost"}, {unix.O_RDWR, true, true, false, "Xldhost"},
		{unix.O_WRONLY | unix.O_APPEND, false, true, false, "oldhostX"}, {unix.O_RDWR | unix.O_APPEND, true, true, false, "oldhostX"},
		{unix.O_RDWR, true, true, true, "Xost"}, {unix.O_RDWR | unix.O_APPEND, true, true, true, "hostX"}, {unix.O_WRONLY | unix.O_APPEND, false, true, true, "hostX"},
	} {
		dir := t.TempDir()
		g := newGuest(t, dir, Options{Writable: true})
		var id, fh uint64
		var err error
		if tt.made {
			id, fh, err = g.create(rootID, "f", tt.flags)
		} else {
			put(t, dir, map[string]string{"f": "old"})
			id = g.must(g.walk("f"))
			fh, err = g.open(id, tt.flags)
		}
		if err != nil {
			t.Fatal(err)
		}
		own, err := os.OpenFile(filepath.Join(dir, "f"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = own.WriteString("host")
		if err = errors.Join(err, own.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.read(id, fh, 1); (err == nil) != tt.reads {
			t.Errorf("%#x: read: %v", tt.flags, err)
		}
		if err := g.write(id, fh, 0, "X"); (err == nil) != tt.writes {
			t.Errorf("%#x: write: %v", tt.flags, err)
		}
		if err := g.close(id, fh); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != tt.text {
			t.Errorf("%#x, made %t: %q, %v; want %q", tt.flags, tt.made, b, err, tt.text)
		}
	}
}

func TestGuestModesGiveNoHostRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"f": ""})
	g := newGuest(t, dir, Options{Writable: true, uid: 5, gid: 6})
	id := g.must(g.walk("f"))
	body := append(put32(nil, setMode, 0), make([]byte, 80)...)
	order.PutUint32(body[68:], 0o6751)
	if _, err := g.ask(opSetattr, id, body); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode() != 0o751 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	owner := func() [2]uint32 {
		b, err := g.ask(opGetattr, id, make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		return [2]uint32{order.Uint32(b[16+68:]), order.Uint32(b[16+72:])}
	}
	if got := owner(); got != [2]uint32{5, 6} {
		t.Errorf("owner %v", got)
	}
	body = append(put32(nil, setUID, 0), make([]byte, 80)...)
	order.PutUint32(body[76:], 1000)
	if _, err := g.ask(opSetattr, id, body); err != nil {
		t.Fatal(err)
	}
	if got := owner(); got != [2]uint32{1000, 6} {
		t.Errorf("owner %v after chown", got)
	}
}

func TestRenamesFollowTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a/f": "f", "b/g": "g"})
	g := newGuest(t, dir, Options{Writable: true})
	a, b, f := g.must(g.walk("a")), g.must(g.walk("b")), g.must(g.walk("a", "f"))
	want(t, "no replacing", g.rename(a, "f", b, "g", unix.RENAME_NOREPLACE), unix.EEXIST)
	if err := g.rename(a, "f", b, "g", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if err := g.rename(rootID, "b", a, "b", 0); err != nil {
		t.Fatal(err)
	}
	fh, err := g.open(f, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := g.read(f, fh, 9); text != "f" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := g.cat("a", "f"); text != "g" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	want(t, "into itself", g.rename(rootID, "a", b, "x", 0), unix.EINVAL)
	// The host turns the tree inside out: b holds a now.
	for _, mv := range [][2]string{{"a/b", "b"}, {"a", "b/a"}} {
		if err := os.Rename(filepath.Join(dir, mv[0]), filepath.Join(dir, mv[1])); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := g.cat("b", "a", "f"); text != "g" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestRenamedNodesStayTheSame: after a rename the guest's kernel goes on with the numbers that it has, and asks for no name.
func TestRenamedNodesStayTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "a", "b": "bb", "c": "ccc"})
	if err := os.Link(filepath.Join(dir, "c"), filepath.Join(dir, "c2")); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{Writable: true})
	a, b, c := g.must(g.walk("a")), g.must(g.walk("b")), g.must(g.walk("c"))
	sizes := func(when string, want map[uint64]uint64) {
		t.Helper()
		for id, size := range want {
			if got := g.attrs(g.ask(opGetattr, id, make([]byte, 16))); got.size != size {
				t.Errorf("%s: node %d has %d bytes, want %d", when, id, got.size, size)
			}
		}
	}
	if err := g.rename(rootID, "a", rootID, "b", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	sizes("exchanged", map[uint64]uint64{a: 1, b: 2})
	if err := g.rename(rootID, "a", rootID, "c", 0); err != nil { // b's content is called a now
		t.Fatal(err)
	}
	sizes("moved over one of two links", map[uint64]uint64{a: 1, b: 2})
	if other := g.must(g.walk("c2")); other != c {
		t.Errorf("the file that has another name is node %d now, it was %d", other, c)
	}
}

func TestI11_GuestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 50 {
		put(t, dir, map[string]string{fmt.Sprint(i): ""})
	}
	g := newGuest(t, dir, Options{Writable: true})
	g.s.maxNodes, g.s.maxHandles = 11, 5
	var nodes []uint64
	for i := range 50 {
		id, err := g.walk(fmt.Sprint(i))
		if i >= 10 {
			want(t, "lookup", err, unix.ENFILE)
			continue
		}
		nodes = append(nodes, g.must(id, err))
	}
	_ = g.list(rootID, opReaddirplus, maxIO) // more than it may hold: names only
	var handles []uint64
	for i := range 10 {
		fh, err := g.open(nodes[0], unix.O_RDONLY)
		if i >= 5 {
			want(t, "open", err, unix.EMFILE)
			continue
		}
		handles = append(handles, g.must(fh, err))
	}
	for _, fh := range handles {
		if err := g.close(nodes[0], fh); err != nil {
			t.Error(err)
		}
	}
	for _, id := range nodes {
		g.s.tell(request{op: opForget, node: id, body: put64(nil, 1<<60)})
	}
	if g.s.count != 1 || len(g.s.nodes) != 1 || len(g.s.known) != 1 || len(g.s.handles) != 0 {
		t.Errorf("%d nodes, %d, %d, %d handles left", g.s.count, len(g.s.nodes), len(g.s.known), len(g.s.handles))
	}
	g.must(g.walk("40"))
}

func TestI11_DirectoriesKeptOpenAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range maxDirs + 50 {
		put(t, dir, map[string]string{fmt.Sprintf("%d/f", i): ""})
	}
	g := newGuest(t, dir, Options{})
	for i := range maxDirs + 50 {
		g.must(g.walk(fmt.Sprint(i), "f"))
		if len(g.s.dirs) > maxDirs {
			t.Fatalf("%d directories are open", len(g.s.dirs))
		}
	}
	deep := strings.Repeat("d/", 30)
	put(t, dir, map[string]string{deep + "f": "f"})
	if text, err := g.cat(strings.Split(deep+"f", "/")...); err != nil || text != "f" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOldestDirectoryIsClosed: in the place of one more the directory goes that was not used for longest, and never the top,
// which no path leads back to if the host moves it.
func TestOldestDirectoryIsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"a/b/c/d/e/f": "", "a/b2/f": ""})
	g := newGuest(t, dir, Options{})
	g.s.maxDirs = 3
	ids := map[string]uint64{"": rootID}
	for _, step := range []struct {
		in, name string
		open     []string // behind it, of those that were looked into
	}{
		{"", "a", []string{""}}, {"a", "b", []string{"", "a"}}, {"b", "c", []string{"", "a", "b"}}, {"a", "b2", []string{"", "a", "b"}},
		{"c", "d", []string{"", "a", "c"}}, {"d", "e", []string{"", "c", "d"}}, {"b2", "f", []string{"", "b2", "d"}},
	} {
		b, err := g.ask(opLookup, ids[step.in], name(step.name))
		if err != nil {
			t.Fatal(err)
		}
		ids[step.name] = order.Uint64(b)
		var open []string
		for _, n := range slices.Sorted(maps.Keys(ids)) {
			if g.s.dirs[g.s.nodes[ids[n]]] != nil {
				open = append(open, n)
			}
		}
		if !slices.Equal(open, step.open) {
			t.Errorf("after %s in %q: open are %q, want %q", step.name, step.in, open, step.open)
		}
	}
}

func TestHiddenNamesAreNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{".env": "x", "sub/.env": "x", ".git/config": "x", ".git/HEAD": "x", "sub/config": "x"})
	g := newGuest(t, dir, Options{Writable: true, Hide: []string{".env", ".git/config"}})
	for _, path := range [][]string{{".env"}, {"sub", ".env"}, {".git", "config"}} {
		_, err := g.walk(path...)
		want(t, strings.Join(path, "/"), err, unix.ENOENT)
	}
	git, sub := g.must(g.walk(".git")), g.must(g.walk("sub"))
	if got := g.list(git, opReaddirplus, 4096); len(got) != 3 {
		t.Errorf("listed %v", got)
	}
	g.must(g.walk("sub", "config"))
	_, _, err := g.create(sub, ".env", unix.O_RDWR)
	want(t, "create", err, unix.EACCES)
	want(t, "rename away", g.rename(git, "config", sub, "shown", 0), unix.EACCES)
	want(t, "rename the directory above", g.rename(rootID, ".git", rootID, "shown", 0), unix.EACCES)
	put(t, dir, map[string]string{"other/deep/er/file": ""})
	if err := errors.Join(g.rename(rootID, "other", rootID, "moved", 0), g.rename(g.must(g.walk("moved", "deep", "er")), "file", sub, "file", 0)); err != nil {
		t.Errorf("rename of what leads to nothing hidden: %v", err)
	}
	want(t, "exchange the directory above", g.rename(rootID, "sub", rootID, ".git", unix.RENAME_EXCHANGE), unix.EACCES)
	_, err = g.ask(opUnlink, git, name("config"))
	want(t, "unlink", err, unix.EACCES)
	for _, p := range []string{"", "/x", "../x", "a//b", "[", "a/../b"} {
		if CheckHide(p) == nil {
			t.Errorf("%q is taken as a pattern", p)
		}
	}
}

// TestWritesThatDoNotFitAreCountedInPart, as write(2) does: the guest's program goes on behind what was written.
func TestWritesThatDoNotFitAreCountedInPart(t *testing.T) { // not parallel: the bound is the process's
	dir := t.TempDir()
	g := newGuest(t, dir, Options{Writable: true})
	id, fh, err := g.create(rootID, "f", unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	more := rotatetest.FullAt(t, 4)
	b, err := g.ask(opWrite, id, append(put32(put64(nil, fh, 0), 6, 0, 0, 0, 0, 0), "abcdef"...))
	full := g.write(id, fh, 4, "ef")
	more()
	if err != nil || order.Uint32(b) != 4 {
		t.Errorf("six bytes where four fit: %x, %v", b, err)
	}
	want(t, "the others", full, unix.EFBIG)
}
