package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// item is one entry of a layer in a test.
type item struct {
	name string
	flag byte
	link string
	body string
	size int64 // for headers that lie; 0 is len(body)
	uid  int
	dev  int64
	pax  map[string]string
}

func file(name, body string) item       { return item{name: name, flag: tar.TypeReg, body: body} }
func dir(name string) item              { return item{name: name + "/", flag: tar.TypeDir} }
func symlink(name, target string) item  { return item{name: name, flag: tar.TypeSymlink, link: target} }
func hardlink(name, target string) item { return item{name: name, flag: tar.TypeLink, link: target} }

var someTime = time.Unix(1_700_000_000, 0)

func tarOf(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, it := range items {
		hdr := &tar.Header{
			Name: it.name, Typeflag: it.flag, Linkname: it.link, Mode: 0o644, Uid: it.uid,
			ModTime: someTime, Devmajor: it.dev, Devminor: it.dev, PAXRecords: it.pax,
		}
		if it.flag == tar.TypeReg {
			hdr.Size = int64(len(it.body))
		}
		if it.size != 0 {
			hdr.Size = it.size
		}
		if it.flag == tar.TypeDir {
			hdr.Mode = 0o755
		}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatalf("write %q: %v", it.name, err)
		}
		_, _ = io.WriteString(w, it.body)
	}
	_ = w.Flush()
	if len(items) == 0 || items[len(items)-1].size == 0 {
		_ = w.Close()
	}
	return b.Bytes()
}

func testBudget() *Budget {
	return &Budget{TotalBytes: 1 << 20, FileBytes: 1 << 18, Entries: 1000, MetadataBytes: 1 << 20}
}

func readTest(t testing.TB, b *Budget, stream []byte) (*Layer, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return ReadLayer(t.Context(), bytes.NewReader(stream), NewSpool(f), b)
}

// flatten applies layers, each a list of items, lowest first.
func flatten(t testing.TB, layers ...[]item) (*Tree, error) {
	t.Helper()
	b := testBudget()
	tree := NewTree(b)
	for _, items := range layers {
		l, err := readTest(t, b, tarOf(t, items...))
		if err != nil {
			return nil, err
		}
		if err := tree.Apply(l); err != nil {
			return nil, err
		}
	}
	tree.Mask()
	return tree, nil
}

// listing reads the tree back from its tar stream: "name kind detail".
func listing(t testing.TB, tree *Tree) []string {
	t.Helper()
	var b bytes.Buffer
	if err := tree.WriteTar(t.Context(), &b, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	var out []string
	r := tar.NewReader(&b)
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if hdr.Name == "./" {
			continue
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %c %s%s", hdr.Name, hdr.Typeflag, hdr.Linkname, body)))
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	type layers = [][]item
	for name, tc := range map[string]struct {
		layers layers
		want   []string
	}{
		"names are rooted":             {layers{{file("/abs", "1"), file("./dot", "2"), file("a//b/./c", "3")}}, []string{"a/ 5", "a/b/ 5", "a/b/c 0 3", "abs 0 1", "dot 0 2"}},
		"the upper layer wins":         {layers{{file("a", "1")}, {file("a", "2")}}, []string{"a 0 2"}},
		"the last duplicate wins":      {layers{{file("a", "1"), file("a", "2")}}, []string{"a 0 2"}},
		"a directory merges":           {layers{{dir("d"), file("d/a", "1")}, {dir("d"), file("d/b", "2")}}, []string{"d/ 5", "d/a 0 1", "d/b 0 2"}},
		"a file replaces a directory":  {layers{{file("d/a", "1")}, {file("d", "2")}}, []string{"d 0 2"}},
		"a directory replaces a link":  {layers{{symlink("d", "e"), file("e/x", "1")}, {dir("d"), file("d/a", "2")}}, []string{"d/ 5", "d/a 0 2", "e/ 5", "e/x 0 1"}},
		"a whiteout hides":             {layers{{file("a", "1"), file("b", "2")}, {file(".wh.a", "")}}, []string{"b 0 2"}},
		"a whiteout hides a directory": {layers{{file("d/x", "1")}, {file(".wh.d", "")}}, nil},
		"a whiteout hides only below": {
			layers{{file("a", "1")}, {file("a", "2"), file(".wh.a", "")}}, []string{"a 0 2"}},
		"a whiteout of nothing": {layers{{file("a", "1")}, {file("no/.wh.b", ""), file("a/.wh.c", "")}}, []string{"a 0 1"}},
		"opaque hides only below": {
			layers{{file("d/old", "1")}, {file("d/new", "2"), file("d/.wh..wh..opq", "")}}, []string{"d/ 5", "d/new 0 2"}},
		"opaque root":      {layers{{file("old", "1")}, {file(".wh..wh..opq", ""), file("new", "2")}}, []string{"new 0 2"}},
		"AUFS bookkeeping": {layers{{file(".wh..wh.aufs", ""), file(".wh..wh.plnk/1.2", "x"), file("a", "1")}}, []string{"a 0 1"}},
		"parents through a link": {
			layers{{dir("usr/lib"), symlink("lib", "usr/lib")}, {file("lib/x", "1")}}, []string{"lib 2 usr/lib", "usr/ 5", "usr/lib/ 5", "usr/lib/x 0 1"}},
		"an absolute link stays inside": {
			layers{{symlink("a", "/etc"), file("a/passwd", "1")}}, []string{"a 2 /etc", "etc/ 5", "etc/passwd 0 1"}},
		"dots of a link stop at the root": {
			layers{{symlink("a", "../../../../etc"), file("a/passwd", "1")}}, []string{"a 2 ../../../../etc", "etc/ 5", "etc/passwd 0 1"}},
		"the last link is not followed": {
			layers{{symlink("a", "/etc/passwd")}, {file("a", "1")}}, []string{"a 0 1"}},
		"hard links": {
			layers{{file("b", "1"), hardlink("a", "b"), hardlink("c/d", "/b")}}, []string{"a 0 1", "b 1 a", "c/ 5", "c/d 1 a"}},
		"hard link to a lower layer": {layers{{file("z", "1")}, {hardlink("a", "z")}}, []string{"a 0 1", "z 1 a"}},
		"a replaced name leaves its links": {
			layers{{file("a", "1"), hardlink("b", "a")}, {file("a", "2")}}, []string{"a 0 2", "b 0 1"}},
		"hard link to a link": {layers{{symlink("a", "x"), hardlink("b", "a")}}, []string{"a 2 x", "b 1 a"}},
		"reserved names are masked": {
			layers{{file(".msb/x", "1"), file(".krun_config.json", "{}"), file("init.krun", "x"), file("a/.msb", "kept")}}, []string{"a/ 5", "a/.msb 0 kept"}},
		"reserved names through links are masked": {
			layers{{symlink("l", "/.msb"), file("l/agent", "1"), symlink("r", "."), file("r/init.krun", "x")}}, []string{"l 2 /.msb", "r 2 ."}},
		"devices": {layers{{{name: "null", flag: tar.TypeChar, dev: 3}, {name: "sda", flag: tar.TypeBlock, dev: 8}, {name: "p", flag: tar.TypeFifo}}},
			[]string{"null 3", "p 6", "sda 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, err := flatten(t, tc.layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, tree); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestI14_HostileEntriesAreRefusedByName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for name, tc := range map[string]struct {
		items []item
		names string // what the error must show
		is    error
	}{
		"parent":                      {[]item{file("../evil", "x")}, `"../evil"`, ErrHostile},
		"parent in the middle":        {[]item{file("a/../../evil", "x")}, `"a/../../evil"`, ErrHostile},
		"absolute parent":             {[]item{file("/../evil", "x")}, `"/../evil"`, ErrHostile},
		"long component":              {[]item{file(long, "x")}, `"xxxx`, ErrHostile},
		"long path":                   {[]item{file(strings.Repeat("a/", 2100)+"evil", "x")}, `"a/a/`, ErrHostile},
		"root as a link":              {[]item{symlink(".", "/etc")}, `"."`, ErrHostile},
		"root as a hard link":         {[]item{file("a", ""), hardlink(".", "a")}, `"."`, ErrHostile},
		"hard link outside":           {[]item{hardlink("evil", "../../etc/shadow")}, `"evil"`, ErrHostile},
		"hard link to nothing":        {[]item{hardlink("evil", "/etc/shadow")}, `"evil"`, ErrHostile},
		"hard link to a directory":    {[]item{dir("d"), hardlink("evil", "d")}, `"evil"`, ErrHostile},
		"hard link to the root":       {[]item{hardlink("evil", "/")}, `"evil"`, ErrHostile},
		"hard link to itself":         {[]item{hardlink("evil", "evil")}, `"evil"`, ErrHostile},
		"whiteout of the parent":      {[]item{file("a/.wh...", "")}, `"a/.wh..."`, ErrHostile},
		"whiteout of the directory":   {[]item{file("a/.wh..", "")}, `"a/.wh.."`, ErrHostile},
		"whiteout of nothing":         {[]item{file("a/.wh.", "")}, `"a/.wh."`, ErrHostile},
		"whiteout as a directory":     {[]item{file(".wh.a/evil", "")}, `".wh.a/evil"`, ErrHostile},
		"link loop":                   {[]item{symlink("a", "b"), symlink("b", "a"), file("a/evil", "x")}, `"a/evil"`, ErrHostile},
		"link to itself":              {[]item{symlink("a", "a/a"), file("a/evil", "x")}, `"a/evil"`, ErrHostile},
		"below a file":                {[]item{file("a", "x"), file("a/evil", "x")}, `"a/evil"`, ErrHostile},
		"below a device":              {[]item{{name: "a", flag: tar.TypeChar}, file("a/evil", "x")}, `"a/evil"`, ErrHostile},
		"device number":               {[]item{{name: "evil", flag: tar.TypeBlock, dev: 1 << 20}}, `"evil"`, ErrHostile},
		"owner":                       {[]item{{name: "evil", flag: tar.TypeReg, uid: 1<<32 - 1}}, `"evil"`, ErrHostile},
		"unknown type":                {[]item{{name: "evil", flag: 'Z'}}, `"evil"`, ErrHostile},
		"attribute bomb":              {[]item{{name: "evil", flag: tar.TypeReg, pax: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("x", 5000)}}}, `"evil"`, ErrHostile},
		"broken ACL":                  {[]item{{name: "evil", flag: tar.TypeReg, pax: map[string]string{"SCHILY.xattr.system.posix_acl_access": "zz"}}}, `"evil"`, ErrHostile},
		"huge file":                   {[]item{{name: "evil", flag: tar.TypeReg, size: 1 << 40}}, `"evil"`, ErrLimit},
		"many bytes":                  {append(repeat(5, func(i int) item { return file(fmt.Sprint("f", i), strings.Repeat("x", 1<<18)) }), file("evil", "x")), `"f4"`, ErrLimit},
		"many entries":                {repeat(1001, func(i int) item { return file(fmt.Sprint("f", i), "") }), `"f1000"`, ErrLimit},
		"device bomb":                 {repeat(1001, func(i int) item { return item{name: fmt.Sprint("d", i), flag: tar.TypeBlock} }), `"d1000"`, ErrLimit},
		"implied directories":         {[]item{file(strings.Repeat("a/", 1500)+"evil", "")}, `"a/a/`, ErrLimit},
		"metadata":                    {repeat(300, func(i int) item { return symlink(fmt.Sprint("l", i), strings.Repeat("x", 4000)) }), `"l`, ErrLimit},
		"long link target":            {[]item{symlink("evil", strings.Repeat("x", 4096))}, `"evil"`, ErrHostile},
		"link to long names":          {[]item{symlink("a", strings.Repeat("x", 300)), file("a/evil", "")}, `"a/evil"`, ErrHostile},
		"terminal escapes are quoted": {[]item{file("\x1b]52;c;evil\a/../x", "")}, `\x1b]52`, ErrHostile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := flatten(t, tc.items)
			if !errors.Is(err, tc.is) {
				t.Fatalf("got %v, want %v", err, tc.is)
			}
			if !strings.Contains(err.Error(), tc.names) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the error does not name the entry %s: %v", tc.names, err)
			}
		})
	}
}

func repeat(n int, f func(int) item) []item {
	out := make([]item, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

func TestI14_WhiteoutThroughALinkIsRefused(t *testing.T) {
	t.Parallel()
	_, err := flatten(t,
		[]item{file("etc/passwd", "x"), symlink("a", "/etc")},
		[]item{file("a/.wh.passwd", "")})
	if !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), `"a/.wh.passwd"`) {
		t.Fatalf("got %v, want a refusal that names the marker", err)
	}
}

func TestI12_BrokenStreamsAreRefused(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, file("a", "hello"), file("b", strings.Repeat("x", 2000)))
	negative := tarOf(t, file("a", ""))
	copy(negative[124:136], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // base-256 -1
	for name, stream := range map[string][]byte{
		"not a tar":        []byte(strings.Repeat("<html>", 200)),
		"cut in a header":  whole[:1024+100],
		"cut in a content": whole[:514],
		"negative size":    negative,
	} {
		if _, err := readTest(t, testBudget(), stream); !errors.Is(err, ErrHostile) {
			t.Errorf("%s: got %v, want ErrHostile", name, err)
		}
	}
}

func TestI11_ZerosAfterTheEndAreBounded(t *testing.T) {
	t.Parallel()
	b := testBudget()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	endless := io.MultiReader(bytes.NewReader(tarOf(t, file("a", "1"))), zeros{})
	if _, err := ReadLayer(t.Context(), endless, NewSpool(f), b); !errors.Is(err, ErrLimit) {
		t.Fatalf("got %v, want ErrLimit", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestOverlayAttributesAreStripped(t *testing.T) {
	t.Parallel()
	l, err := readTest(t, testBudget(), tarOf(t, item{name: "a", flag: tar.TypeReg, pax: map[string]string{
		"SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.trusted.overlay.opaque": "y",
		"SCHILY.xattr.user.overlay.metacopy": "", "SCHILY.xattr.com.apple.quarantine": "x",
		"SCHILY.xattr.user.kept": "v", "SCHILY.xattr.user.": "bare", "SCHILY.xattr.security.capability": "c",
	}}))
	if err != nil {
		t.Fatal(err)
	}
	got := l.entries[0].node.xattrs
	if len(got) != 2 || got["user.kept"] != "v" || got["security.capability"] != "c" {
		t.Errorf("kept %q, want user.kept and security.capability", got)
	}
}

func TestSparseFilesStayWhole(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("\x00", 10000) + "middle" + strings.Repeat("\x00", 9000)
	tree, err := flatten(t, []item{file("a", body), file("b", "tail"), file("zeros", strings.Repeat("\x00", 5000))})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a 0 " + body, "b 0 tail", "zeros 0 " + strings.Repeat("\x00", 5000)}
	if got := listing(t, tree); !slices.Equal(got, want) {
		t.Errorf("contents changed: %d entries", len(got))
	}
}

// TestI11_HeadersOfEntriesAreNotKept: an entry with a short name and a megabyte of records kept the megabyte. Not parallel:
// it looks at the heap.
func TestI11_HeadersOfEntriesAreNotKept(t *testing.T) {
	const n, size = 24, 900 << 10
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{
			Name: fmt.Sprintf("%0200d", i), Linkname: fmt.Sprintf("%0200d", i), Typeflag: tar.TypeSymlink, Format: tar.FormatPAX,
			PAXRecords: map[string]string{"X.comment": strings.Repeat("c", size), "SCHILY.xattr.user.a": "b"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l, err := ReadLayer(t.Context(), &b, NewSpool(f), &Budget{TotalBytes: 64 << 20, FileBytes: 1 << 20, Entries: 100, MetadataBytes: 1 << 20})
	if err != nil || len(l.entries) != n {
		t.Fatalf("%+v, %v", l, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(l)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*size/4 {
		t.Errorf("%d entries keep %d bytes", n, kept)
	}
}

// TestI11_ComponentsAndAttributesAreCounted: a name of 2,000 components, and an attribute of two characters, take many
// times their characters.
func TestI11_ComponentsAndAttributesAreCounted(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("a/", 2000)
	attrs := map[string]string{}
	for i := range 100 {
		attrs[fmt.Sprintf("SCHILY.xattr.user.%d", i)] = ""
	}
	for what, hdr := range map[string]*tar.Header{
		"components":           {Name: deep + "x", Typeflag: tar.TypeFifo},
		"components of a link": {Name: "x", Linkname: deep + "x", Typeflag: tar.TypeLink},
		"attributes":           {Name: "x", Typeflag: tar.TypeFifo, PAXRecords: attrs, Format: tar.FormatPAX},
	} {
		budget := &Budget{TotalBytes: 1, FileBytes: 1, Entries: 1, MetadataBytes: 8 << 10}
		if err := (&Layer{}).add(t.Context(), hdr, nil, nil, budget); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v with a budget of 8 KiB, want ErrLimit", what, err)
		}
	}
}

// TestI11_ImpliedDirectoriesCostTheirNames: each file under the link implies a directory of its own, as often as the
// target names one.
func TestI11_ImpliedDirectoriesCostTheirNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 200)
	budget := testBudget()
	l, err := readTest(t, budget, tarOf(t, symlink("link", long+"/"+long), file("link/a", ""), file("link/b", "")))
	if err != nil {
		t.Fatal(err)
	}
	read := budget.metadata.Load()
	if err := NewTree(budget).Apply(l); err != nil {
		t.Fatal(err)
	}
	if got := budget.metadata.Load() - read; got != 2*200 {
		t.Errorf("%d bytes for two directories that are implied, want 400", got)
	}
	budget.MetadataBytes = budget.metadata.Load() + 2*200 - 1
	if err := NewTree(budget).Apply(l); !errors.Is(err, ErrLimit) {
		t.Errorf("%v beyond the budget, want ErrLimit", err)
	}
}
