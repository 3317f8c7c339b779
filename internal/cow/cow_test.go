//go:build linux

package cow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// world is a directory of the host, which the guest has seen in full, and the guest's layer over it.
type world struct {
	t       *testing.T
	top     string // the directory, beside others
	tree    *Tree
	layer   []Entry
	content map[string]string
	hidden  []string
	room    int64
	onOpen  func(name string)
}

// newWorld makes files: one whose name ends in "/" is a directory, and content that begins with "->" a link's target.
func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	w := &world{t: t, top: filepath.Join(t.TempDir(), "served"), content: map[string]string{}, room: 1 << 20}
	w.must(os.Mkdir(w.top, 0o755))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w.host(name, files[name])
	}
	root, err := os.OpenRoot(w.top)
	w.must(err)
	base := filepath.Join(t.TempDir(), "base")
	w.tree, err = New(root, Options{
		Base: Base{}, BaseFile: base, Room: func() (int64, error) { return w.room, nil },
		Hidden:   func(p string) bool { return slices.Contains(w.hidden, path.Base(p)) },
		Confines: func(p string) string { return map[string]string{"policy.toml": "it is the policy"}[p] },
		Open: func(_ context.Context, name string) (io.ReadCloser, error) {
			if w.onOpen != nil {
				w.onOpen(name)
			}
			text, ok := w.content[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return io.NopCloser(strings.NewReader(text)), nil
		},
	})
	w.must(err)
	t.Cleanup(func() { _ = w.tree.Close() })
	w.see()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// host makes a file on the host.
func (w *world) host(name, text string) {
	w.t.Helper()
	at := filepath.Join(w.top, name)
	w.must(os.MkdirAll(filepath.Dir(at), 0o755))
	switch target, link := strings.CutPrefix(text, "->"); {
	case strings.HasSuffix(name, "/"):
		w.must(os.MkdirAll(at, 0o755))
	case link:
		w.must(os.Symlink(target, at))
	default:
		w.must(os.WriteFile(at, []byte(text), 0o644))
	}
}

// see has the guest shown all that the host has.
func (w *world) see() {
	w.t.Helper()
	w.must(filepath.WalkDir(w.top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(w.top, p)
		w.tree.opts.Base[rel] = fileOf(info)
		return err
	}))
}

// guest puts a file into the layer, and the directories around it.
func (w *world) guest(name, text string) *Entry {
	for dir := path.Dir(strings.TrimSuffix(name, "/")); dir != "."; dir = path.Dir(dir) {
		if !slices.ContainsFunc(w.layer, func(e Entry) bool { return e.Path == dir }) {
			w.layer = append(w.layer, Entry{Path: dir, Mode: fs.ModeDir | 0o755})
		}
	}
	e := Entry{Path: strings.TrimSuffix(name, "/"), Mode: 0o644, Size: int64(len(text))}
	switch target, link := strings.CutPrefix(text, "->"); {
	case text == "gone":
		e.Whiteout, e.Mode = true, fs.ModeDevice|fs.ModeCharDevice
	case strings.HasSuffix(name, "/"):
		e.Mode = fs.ModeDir | 0o755
	case link:
		e.Mode, e.Target = fs.ModeSymlink|0o777, target
	default:
		w.content[e.Path] = text
	}
	w.layer = append(w.layer, e)
	slices.SortFunc(w.layer, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return &w.layer[slices.IndexFunc(w.layer, func(o Entry) bool { return o.Path == e.Path })]
}

func (w *world) compare() []Change {
	w.t.Helper()
	all, err := w.tree.Compare(w.t.Context(), w.layer)
	w.must(err)
	return all
}

func nothing(string) bool { return false }

// apply applies everything and returns the errors by path.
func (w *world) apply(all []Change) map[string]error {
	w.t.Helper()
	var order []*Change
	for i := range all {
		order = append(order, &all[i])
	}
	Order(order)
	errs := map[string]error{}
	for _, c := range order {
		if err := w.tree.Apply(w.t.Context(), c, nothing); err != nil {
			errs[c.Path] = err
		}
	}
	return errs
}

// holds compares what is on the host now.
func (w *world) holds(want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	w.must(filepath.WalkDir(w.top, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.top, p)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			got[rel+"/"] = ""
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			got[rel] = "->" + target
			return err
		default:
			b, err := os.ReadFile(p)
			got[rel] = string(b)
			return err
		}
		return nil
	}))
	if !maps.Equal(got, want) {
		w.t.Errorf("the host has %q, want %q", got, want)
	}
}

// TestApplyMakesBothDirectoriesEqual goes through every kind of change, then finds none.
func TestApplyMakesBothDirectoriesEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"edit": "one\n", "same": "same", "gone": "x", "tree/a/b": "x", "tree/c": "x", "swap/in": "x", "file": "x", "link": "->edit", "keeps/k": "k", "opaque/old": "x", "opaque/both": "old", "dirlink/x": "x",
	})
	w.guest("edit", "two\n")
	w.guest("same", "same")
	w.guest("gone", "gone")
	w.guest("tree", "gone")
	w.guest("swap", "now a file")
	w.guest("file/in", "now in a directory")
	w.guest("link", "->same")
	w.guest("new/deep/f", "new")
	w.guest("keeps/new", "")
	w.guest("opaque/", "").Opaque = true
	w.guest("opaque/both", "new")
	w.guest("dirlink", "->keeps")
	w.guest("absent", "gone") // made and removed again
	all := w.compare()
	if errs := w.apply(all); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := map[string]string{
		"edit": "two\n", "same": "same", "swap": "now a file", "file/": "", "file/in": "now in a directory", "link": "->same", "new/": "", "new/deep/": "", "new/deep/f": "new",
		"keeps/": "", "keeps/k": "k", "keeps/new": "", "opaque/": "", "opaque/both": "new", "dirlink": "->keeps",
	}
	w.holds(want)
	if again := w.compare(); len(again) != 0 {
		t.Errorf("after it %+v is left", again)
	}
	// What was applied is what the guest goes on from, also for who reads the records again.
	base, err := ReadBase(w.tree.opts.BaseFile)
	if err != nil || base["edit"] != w.tree.opts.Base["edit"] || base["gone"] != (File{}) {
		t.Errorf("%v, %v", base, err)
	}
	w.guest("edit2", "")
	w.content["edit"] = "three\n"
	w.layer[slices.IndexFunc(w.layer, func(e Entry) bool { return e.Path == "edit" })].Size = 6
	if errs := w.apply(w.compare()); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestDiffShowsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"edit": "one\ntwo\n", "binary": "a\x00b", "gone": "x\n"})
	w.guest("edit", "one\n2\n")
	w.guest("binary", "a\x00c")
	w.guest("gone", "gone")
	w.guest("new", "n\n")
	w.guest("large", strings.Repeat("x", maxText+1))
	all := w.compare()
	for i, want := range []string{"", "@@ -1,2 +1,2 @@\n one\n-two\n+2\n", "@@ -1,1 +0,0 @@\n-x\n", "", "@@ -0,0 +1,1 @@\n+n\n"} {
		if text, err := w.tree.Diff(t.Context(), &all[i]); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", all[i].Path, text, err, want)
		}
	}
}

func TestI12_ImpossibleLayersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"dir/f": "x"})
	dir, file, gone := Entry{Path: "dir", Mode: fs.ModeDir}, Entry{Path: "dir", Mode: 0o644}, Entry{Path: "dir", Mode: fs.ModeDir, Whiteout: true}
	inner := Entry{Path: "dir/f", Mode: 0o644}
	for name, layer := range map[string][]Entry{
		"twice": {file, file}, "below a file": {file, inner}, "below nothing": {inner}, "below what is removed": {gone, inner}, "before its directory": {inner, dir},
	} {
		if _, err := w.tree.Compare(t.Context(), layer); !errors.Is(err, errList) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestI14_LinksThatLeadElsewhereAreRefused: the twin applies each without the refusal, and the link is there.
func TestI14_LinksThatLeadElsewhereAreRefused(t *testing.T) {
	t.Parallel()
	for target, refused := range map[string]bool{
		"edit": false, "../edit": false, "in/x": false, "missing": false, "./in//x": false, "..": false,
		"/etc/passwd": true, "../../edit": true, "../..": true, "in/../../x": true, "in/..": true, "../out/passwd": true, "": true,
	} {
		w := newWorld(t, map[string]string{"edit": "x", "sub/in/x": "x", "out": "->/etc"})
		w.guest("sub/link", "->"+target)
		all := w.compare()
		c := &all[0]
		if r := c.Refused(func(name string) bool { return true }); (r != nil) != refused || r != nil && r.Name != refusedLink {
			t.Errorf("%q: %+v", target, r)
		}
		if err := w.tree.Apply(t.Context(), c, func(string) bool { return true }); errors.Is(err, ErrRefused) != refused {
			t.Errorf("%q: %v", target, err)
		}
		if _, err := os.Lstat(w.top + "/sub/link"); (err == nil) == refused {
			t.Errorf("%q: %v", target, err)
		}
		c.Refusals = nil // the twin
		if err := w.tree.Apply(t.Context(), c, nothing); refused && target != "" && err != nil {
			t.Errorf("%q without the refusal: %v", target, err)
		}
	}
}

// TestI14_ChangesFollowNoLink has a link in the place of a directory: from the beginning, or once the change was
// looked at. The twin writes by the path.
func TestI14_ChangesFollowNoLink(t *testing.T) {
	t.Parallel()
	for _, later := range []bool{false, true} {
		w := newWorld(t, map[string]string{"dir/": "", "in/": ""})
		outside := filepath.Join(filepath.Dir(w.top), "outside")
		w.must(os.Mkdir(outside, 0o755))
		swap := func(target string) {
			w.must(os.RemoveAll(w.top + "/dir"))
			w.must(os.Symlink(target, w.top+"/dir"))
		}
		if !later {
			swap("in")
		}
		w.guest("dir/x", "x")
		all := w.compare()
		c := &all[len(all)-1]
		if c.Path != "dir/x" {
			t.Fatalf("%+v", all)
		}
		if later {
			swap(outside)
		}
		if err := w.tree.Apply(t.Context(), c, func(string) bool { return true }); !errors.Is(err, errNoDir) {
			t.Errorf("later %t: %v", later, err)
		}
		for _, dir := range []string{outside, w.top + "/in"} {
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("later %t: %s holds %v", later, dir, left)
			}
		}
		if later {
			if err := os.WriteFile(filepath.Join(w.top, c.Path), nil, 0o600); err != nil {
				t.Errorf("the twin: %v", err)
			}
		}
	}
}

// TestI14_OtherMountsAreLeftAlone needs root, as mounts do.
func TestI14_OtherMountsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"dir/": "", "gone/mounted/": ""})
	for _, at := range []string{"/dir", "/gone/mounted"} {
		if err := unix.Mount(filepath.Dir(w.top), w.top+at, "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		defer func() { _ = unix.Unmount(w.top+at, unix.MNT_DETACH) }()
	}
	w.guest("dir/x", "x")
	w.guest("gone", "gone")
	all := w.compare()
	if len(all) != 3 || all[0].Path != "dir/x" || all[0].Refused(func(string) bool { return true }) == nil || all[1].Path != "gone" || all[1].Refused(func(string) bool { return true }) == nil {
		t.Errorf("%+v", all)
	}
}

// TestHostsOwnChangesAreKept changes the host's file before the comparison, between it and Apply, and while Apply writes.
func TestHostsOwnChangesAreKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		when string // the host changes its file
		file string
		want error
	}{
		"before": {"before", "edit", ErrRefused}, "after": {"after", "edit", ErrChanged}, "meanwhile": {"meanwhile", "edit", ErrChanged},
		"made before": {"before", "new", ErrRefused}, "made after": {"after", "new", ErrChanged}, "made meanwhile": {"meanwhile", "new", ErrChanged}, "never": {"never", "new", nil},
	} {
		w := newWorld(t, map[string]string{"edit": "one"})
		w.guest(tt.file, "guest")
		change := func(when string) {
			if when == tt.when {
				w.must(os.WriteFile(w.top+"/"+tt.file, []byte("host"), 0o644))
			}
		}
		change("before")
		all := w.compare()
		change("after")
		w.onOpen = func(string) { change("meanwhile") }
		if err := w.tree.Apply(t.Context(), &all[0], nothing); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		want := map[string]string{"edit": "one", "new": "guest"}
		if tt.when != "never" {
			delete(want, "new")
			want[tt.file] = "host"
		}
		w.holds(want) // with nothing half written beside it
		// The twin: who has looked may write over it.
		if tt.when == "before" {
			w.must(w.tree.Apply(t.Context(), &all[0], func(name string) bool { return name == refusedChanged }))
			want[tt.file] = "guest"
			w.holds(want)
		}
	}
}

// TestReplacedFilesCountAsChanged: between the comparison and Apply the host puts something else in the place of what the
// guest has removed. Whatever it is, it stays.
func TestReplacedFilesCountAsChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ old, becomes string }{
		"the same content": {"one", "one"}, "other content": {"one", "two"}, "a link": {"one", "->elsewhere"}, "a directory for a file": {"one", "/"},
		"another link": {"->one", "->two"}, "a file for a link": {"->one", "one"}, "another directory": {"/", "/"}, "a file for a directory": {"/", "one"},
	} {
		put := func(w *world, text string) string {
			name := "x"
			if text == "/" {
				name, text = "x/", ""
			}
			w.host(name, text)
			return name
		}
		for _, replaced := range []bool{true, false} {
			w := newWorld(t, map[string]string{"other": "text"})
			put(w, tt.old)
			w.see()
			w.guest("x", "gone")
			all := w.compare()
			want, err := map[string]string{"other": "text"}, error(nil)
			if replaced {
				w.must(os.Rename(filepath.Join(w.top, "x"), filepath.Join(w.top, "moved"))) // its inode stays taken
				at := put(w, tt.becomes)
				want[at], want[strings.Replace(map[bool]string{true: "x/", false: "x"}[tt.old == "/"], "x", "moved", 1)] = strings.Trim(tt.becomes, "/"), strings.Trim(tt.old, "/")
				err = ErrChanged
			}
			if len(all) != 1 {
				t.Fatalf("%s: %+v", name, all)
			}
			if got := w.tree.Apply(t.Context(), &all[0], nothing); !errors.Is(got, err) {
				t.Errorf("%s, replaced %t: %v, want %v", name, replaced, got, err)
			}
			w.holds(want)
		}
	}
}

func TestHostsRemovalIsAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"edit": "one"})
	w.guest("edit", "two")
	w.must(os.Remove(w.top + "/edit"))
	all := w.compare()
	if r := all[0].Refused(nothing); r == nil || r.Name != refusedChanged {
		t.Errorf("%+v", all)
	}
}

// TestI14_OnlyWhatWasShownIsWritten: the guest changes its file once it was shown.
func TestI14_OnlyWhatWasShownIsWritten(t *testing.T) {
	t.Parallel()
	for _, shown := range []bool{true, false} {
		w := newWorld(t, map[string]string{"edit": "good"})
		w.guest("edit", "fine")
		all := w.compare()
		if shown {
			if _, err := w.tree.Diff(t.Context(), &all[0]); err != nil {
				t.Fatal(err)
			}
		}
		w.content["edit"] = "evil"
		if err := w.tree.Apply(t.Context(), &all[0], nothing); errors.Is(err, ErrChanged) != shown {
			t.Errorf("shown %t: %v", shown, err)
		}
		w.content["edit"] = "of another size"
		if err := w.tree.Apply(t.Context(), &w.compare()[0], nothing); err == nil {
			t.Error("the size may change")
		}
	}
}

func TestI14_AppliedModesAddNoRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"edit": "x", "shared": "x"})
	w.must(os.Chmod(w.top+"/shared", 0o666))
	w.see()
	for _, name := range []string{"edit", "new", "shared"} {
		w.guest(name, "y").Mode = 0o777 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	}
	all := w.compare()
	for i := range all {
		c := &all[i]
		if r := c.Refused(nothing); r == nil || r.Name != refusedExec {
			t.Errorf("%s: %+v", c.Path, c.Refusals)
		}
		w.must(w.tree.Apply(t.Context(), c, func(string) bool { return true }))
		info, err := os.Stat(w.top + "/" + c.Path)
		want := map[string]fs.FileMode{"edit": 0o755, "new": 0o755, "shared": 0o777}[c.Path]
		if err != nil || info.Mode()&^want != 0 || info.Mode()&0o100 == 0 {
			t.Errorf("%s: %v, %v", c.Path, info.Mode(), err)
		}
	}
}

// TestUnreportablePathsStay: the guest may have a version of such a file in a directory that it has made again.
func TestUnreportablePathsStay(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(strings.Repeat("d", 250)+"/", maxPath/251) + strings.Repeat("f", 100)
	w := newWorld(t, map[string]string{"d/" + long: "x", "d/odd\xff": "x"})
	w.guest("d", "gone")
	errs := w.apply(w.compare())
	if _, err := os.Lstat(w.top + "/d/" + long); err != nil || !errors.Is(errs["d"], ErrRefused) {
		t.Errorf("%v, %v", err, errs["d"])
	}
	if _, err := os.Lstat(w.top + "/d/odd\xff"); err == nil {
		t.Error("a file whose name is no UTF-8 stays")
	}
}

func TestI14_HiddenFilesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"dir/.env": "KEY", "dir/f": "x", "other/.env": "KEY", "policy.toml": "strict"})
	w.hidden = []string{".env"}
	w.guest("dir", "gone")
	w.guest("other/.env", "guest")
	w.guest("policy.toml", "loose")
	w.guest("pipe", "").Mode = fs.ModeNamedPipe
	errs := w.apply(w.compare())
	w.holds(map[string]string{"dir/": "", "dir/.env": "KEY", "other/": "", "other/.env": "KEY", "policy.toml": "strict"})
	for _, p := range []string{"dir", "other/.env", "policy.toml", "pipe"} {
		if !errors.Is(errs[p], ErrRefused) {
			t.Errorf("%s: %v", p, errs[p])
		}
	}
}

// TestI12_ReportedSizesAreNotTrusted: a sparse file of the guest's takes no room there.
func TestI12_ReportedSizesAreNotTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.guest("huge", "").Size = 1 << 60
	w.guest("more", "x").Size = 3
	w.guest("less", strings.Repeat("x", 100)).Size = 3
	errs := w.apply(w.compare())
	if !errors.Is(errs["huge"], syscall.ENOSPC) || !errors.Is(errs["more"], ErrChanged) || !errors.Is(errs["less"], ErrChanged) {
		t.Errorf("%v", errs)
	}
	w.holds(nil)
}

func TestI14_NamesThatRunLaterAreRefused(t *testing.T) {
	t.Parallel()
	repository := func(dir string) bool { return dir == "repo.git" || dir == "hooks/in/config" }
	for p, want := range map[string]string{
		"src/main.go": "", ".git/objects/ab/cdef": "", ".git/objects/pack/pack-1.idx": "", ".git/refs/heads/x": "", ".git/HEAD": "", ".git/index": "", ".git/logs/HEAD": "", ".git": "", ".git/COMMIT_EDITMSG": "",
		".github/workflows/ci.yml": "", "Makefile": "", "docs/hooks/x": "", "config": "", ".gitignore": "", "env": "", "hooks": "",
		".git/hooks/pre-commit": "git", "a/.git/config": "git", ".git/info/attributes": "git", ".git/rebase-merge/git-rebase-todo": "git", ".git/objects/info/alternates": "git", ".git/modules/x/config": "git", ".git/config.worktree": "git",
		".git/worktrees/x/gitdir": "git", "repo.git/config": "git", "repo.git/hooks/post-update": "git", "repo.git/commondir": "git", ".git/refs/x/.git/hooks/y": "git", "hooks/in/config/hooks/x": "git", "repo.git/objects/x": "",
		".GIT/hooks/x": "git", ".git/Hooks/x": "git", ".g\u200cit/hooks/x": "git", ".git./hooks/x": "git", ".git /hooks/x": "git", "git~1/hooks/x": "git", ".git::$INDEX_ALLOCATION/hooks/x": "git", ".g\u0130t/hooks": "git", ".gıt/hooks": "",
		".envrc": "direnv", "a/.ENVRC": "direnv", ".envrc\u200d": "direnv",
		".bashrc": "shell", ".bash_profile": "shell", ".vscode/tasks.json": "editor", "x/.VSCode/settings.json": "editor", ".idea/x": "editor", "a.code-workspace": "editor",
		".husky/pre-commit": "hooks", ".hus\u212ay/x": "hooks", ".pre-commit-config.yaml": "hooks", ".claude/settings.json": "agent", ".mcp.json": "agent", ".npmrc": "tool", "sub/Policy.toml": "policy", ".cargo/config.toml": "tool", ".ssh/authorized_keys": "home",
		".con\ufb01g/git/config": "home", ".config/git/config": "home", ".config/other": "",
	} {
		mode := fs.FileMode(0)
		if strings.HasSuffix(p, ".git") {
			mode = fs.ModeDir
		}
		all, _ := byName(p, mode, repository)
		got := ""
		for _, r := range all {
			got += r.Name
		}
		if got != want {
			t.Errorf("%q: refused as %q, want %q", p, got, want)
		}
	}
	if _, note := byName("sub/Makefile", 0, repository); note == "" {
		t.Error("nothing is said of a Makefile")
	}
	// A file in the place of .git names another directory, as links do.
	for p, mode := range map[string]fs.FileMode{".git": 0, "sub/.GIT": fs.ModeSymlink, ".git/refs": fs.ModeSymlink, ".git/objects/ab/cd": fs.ModeSymlink} {
		if all, _ := byName(p, mode, repository); len(all) != 1 || all[0].Name != gitRefusal {
			t.Errorf("%s as %v: %+v", p, mode, all)
		}
	}
}

// TestReadersSeeOldOrNewContent looks at the host's file at each part that is written of the new one.
func TestReadersSeeOldOrNewContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"edit": "old"})
	text := strings.Repeat("new", 100<<10)
	w.guest("edit", text)
	all := w.compare()
	parts := 0
	w.tree.opts.Open = func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(io.TeeReader(strings.NewReader(text), looker(func() {
			parts++
			if b, err := os.ReadFile(w.top + "/edit"); err != nil || !bytes.Equal(b, []byte("old")) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		}))), nil
	}
	w.must(w.tree.Apply(t.Context(), &all[0], nothing))
	w.holds(map[string]string{"edit": text})
	if parts < 2 {
		t.Errorf("it was written in %d parts", parts)
	}
}

type looker func()

func (l looker) Write(b []byte) (int, error) {
	l()
	return len(b), nil
}

// TestI13_KilledAppliesLeaveOneVersion kills a process in the middle of writing.
func TestI14_HeadsIdentifyBareRepositories(t *testing.T) {
	t.Parallel()
	for head, refused := range map[string]bool{"fake/HEAD": true, "Fake/head": true, "fake/other": false, "HEAD": false} {
		w := newWorld(t, nil)
		w.guest(head, "ref: refs/heads/x")
		w.guest("fake/config", "[core]\n\tfsmonitor = ./x\n")
		all := w.compare()
		i := slices.IndexFunc(all, func(c Change) bool { return c.Path == "fake/config" })
		if r := all[i].Refused(nothing); (r != nil) != refused {
			t.Errorf("with %s: %+v", head, r)
		}
	}
}

func TestI13_KilledAppliesLeaveOneVersion(t *testing.T) {
	const env = "MSB_TEST_APPLY_IN"
	half, rest := strings.Repeat("n", 64<<10), "ew"
	if dir := os.Getenv(env); dir != "" { // the process that is killed
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := New(root, Options{
			Base: Base{}, BaseFile: filepath.Join(t.TempDir(), "base"), Room: func() (int64, error) { return 1 << 20, nil }, Hidden: nothing, Confines: func(string) string { return "" },
			Open: func(context.Context, string) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader(half), os.Stdin, strings.NewReader(rest))), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		all, err := tree.Compare(t.Context(), []Entry{{Path: "edit", Mode: 0o644, Size: int64(len(half + rest))}})
		if err == nil {
			err = tree.Apply(t.Context(), &all[0], func(string) bool { return true })
		}
		t.Fatalf("it went on: %v", err)
	}
	w := newWorld(t, map[string]string{"edit": "old"})
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), env+"="+w.top)
	stdin, err := c.StdinPipe()
	w.must(err)
	defer func() { _ = stdin.Close() }()
	w.must(c.Start())
	temporary := func() string {
		found, _ := filepath.Glob(w.top + "/" + temporaryPrefix + "*")
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.Size() == int64(len(half)) {
				return f
			}
		}
		return ""
	}
	for temporary() == "" {
		if t.Context().Err() != nil || c.ProcessState != nil {
			t.Fatal("it never began to write")
		}
		time.Sleep(time.Millisecond)
	}
	w.must(c.Process.Kill())
	_ = c.Wait() // it was killed
	if b, err := os.ReadFile(w.top + "/edit"); err != nil || string(b) != "old" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	w.must(os.Remove(temporary()))
	w.guest("edit", half+rest)
	if errs := w.apply(w.compare()); len(errs) > 0 {
		t.Error(errs)
	}
	w.holds(map[string]string{"edit": half + rest})
}

// TestI12_GrownFilesAreChanges: a guest's file may have been as long as the host's when it was listed, and no longer when it
// is read.
func TestI12_GrownFilesAreChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"log": "one\n"})
	w.guest("log", "one\ntwo\n").Size = 4
	all := w.compare()
	if len(all) != 1 || all[0].Kind != Modified {
		t.Errorf("%+v, want one that is modified", all)
	}
	if errs := w.apply(all); !errors.Is(errs["log"], ErrChanged) {
		t.Errorf("%v", errs)
	}
	w.holds(map[string]string{"log": "one\n"})
}
