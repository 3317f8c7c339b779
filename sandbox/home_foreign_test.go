package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// maker puts something at a path.
type maker func(t *testing.T, path string)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(text string) maker {
	return func(t *testing.T, path string) { t.Helper(); must(t, os.WriteFile(path, []byte(text), 0o600)) }
}

func link(to string) maker {
	return func(t *testing.T, path string) { t.Helper(); must(t, os.Symlink(to, path)) }
}

func fifo(t *testing.T, path string) { t.Helper(); must(t, syscall.Mkfifo(path, 0o600)) }

func socket(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0))
}

// dir makes a directory as old as one that a killed command left.
func dir(entries map[string]maker) maker {
	return func(t *testing.T, path string) {
		t.Helper()
		must(t, os.Mkdir(path, 0o700))
		for name, put := range entries {
			put(t, filepath.Join(path, name))
		}
		past := time.Now().Add(-2 * newRunGrace)
		must(t, os.Chtimes(path, past, past))
	}
}

// tree lists what is below a directory, with its contents.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := e.Type().String()
		if e.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += string(b)
		}
		all[strings.TrimPrefix(path, root)] = text
		return nil
	}))
	return all
}

const staging = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// TestI13_SweepsTakeOnlyWhatMsbMade puts directories of other people's, old and without a lock, in all places that are
// swept: msb ls deleted every one of them. Beside each lies a leftover of msb's, which goes.
func TestI13_SweepsTakeOnlyWhatMsbMade(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	precious := map[string]maker{"precious": file("text")}
	dir(precious)(t, filepath.Join(outside, "other"))
	left := map[string]maker{"lock": file(""), "console.log": file("x"), "console.log.1": file("x"), "audit.jsonl.3": file("x"), "upper.ext4": file("x"), "transfer.disk": file("x"), "supervisor.log": file("")}
	with := func(name string, put maker) maker {
		entries := maps.Clone(left)
		entries[name] = put
		return dir(entries)
	}
	mine := map[string]maker{
		"run/sb-0123456789ab": dir(left), "run/.sb-0123456789ab": dir(left), "run/sb-0123456789ac": dir(nil), "run/.sb-0123456789ac": dir(nil),
		"sandboxes/.0123456789ab": dir(map[string]maker{"sandbox.json": file("{}"), ".sandbox.json123": file("{"), "ca.pem": file(""), "run.json": file(""), "end.json": file(""), "lock": file("")}),
		"sandboxes/.0123456789ac": dir(nil),
		"images/tmp/" + staging:   dir(map[string]maker{"disk.ext4": file("x"), "dropped": dir(map[string]maker{"meta.json": file("{}")})}),
	}
	theirs := map[string]maker{"images/tmp/photos": dir(precious), "images/tmp/empty": dir(nil), "images/tmp/B" + staging[1:]: dir(precious), "images/tmp/C" + staging[1:]: link(filepath.Join(outside, "other"))}
	for i, name := range []string{"old", ".old", ".git", "sb-old", "sb-0123456789AB", "sb-0123456789abc", "sb-0123456789", "sb-0123456789ab ", ".sb-", "..sb-0123456789ab", "sb-0123456789a\n"} {
		theirs["run/"+name], theirs["sandboxes/."+name] = dir(precious), dir(nil)
		theirs[fmt.Sprintf("run/sb-%012d", i)] = with(name, file("x"))
		theirs[fmt.Sprintf("sandboxes/.%012d", i)] = with(name, file("x"))
	}
	for i, put := range []maker{
		with("lock", file("not empty")), with("lock", dir(nil)), with("lock", dir(precious)), with("lock", link(filepath.Join(outside, "other/precious"))), with("lock", fifo),
		with("console.log", dir(precious)), with("console.log", link("/etc/passwd")), with("upper.ext4", fifo), dir(precious), dir(map[string]maker{"console.log": file("no lock")}),
		link(filepath.Join(outside, "other")), file("a file"), fifo,
	} {
		theirs[fmt.Sprintf("run/sb-a%011d", i)] = put
		theirs[fmt.Sprintf("run/.sb-a%011d", i)] = put
	}
	h := newHome(t)
	if _, err := Store(h); err != nil {
		t.Fatal(err)
	}
	for path, put := range theirs {
		put(t, filepath.Join(h.dir, path))
	}
	want := tree(t, h.dir)
	for path, put := range mine {
		put(t, filepath.Join(h.dir, path))
	}
	h, err := OpenHome(h.dir)
	must(t, err)
	_, err = Store(h)
	must(t, err)
	got := tree(t, h.dir)
	for path := range want {
		if got[path] != want[path] {
			t.Errorf("%s is gone or changed", path)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%s is msb's and stays", path)
		}
	}
	if text := tree(t, outside)["/other/precious"]; !strings.HasSuffix(text, "text") {
		t.Error("a link was followed")
	}
}

// TestI13_SweepsSpareRandomForeignDirectories: a directory goes if its name and all that is in it are msb's, and stays
// whole else.
func TestI13_SweepsSpareRandomForeignDirectories(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(26, 1))
	names := []string{"sb-%012x", ".sb-%012x", "sb-%011x", "sb-%012x~", "Sb-%012x", "%012x", "sb_%012x"}
	entries := []string{"console.log", "audit.jsonl", "audit.jsonl.7", "supervisor.log", "upper.ext4", "notes.txt", "audit.jsonl.x", ".console.log", "upper.ext4.bak", "sandbox.json"}
	const namesOwn, entriesOwn = 2, 5
	h := newHome(t)
	gone := map[string]bool{}
	for n := range 400 {
		pick := r.IntN(len(names))
		path := filepath.Join(h.dir, state.RunsDir, fmt.Sprintf(names[pick], n))
		own := pick < namesOwn
		content := map[string]maker{"lock": file("")}
		for range r.IntN(4) {
			e := r.IntN(len(entries))
			put := file("x")
			if r.IntN(12) == 0 {
				put, own = dir(nil), false
			}
			if _, there := content[entries[e]]; !there {
				content[entries[e]] = put
			}
			own = own && e < entriesOwn
		}
		dir(content)(t, path)
		gone[path] = own
	}
	must(t, sweepRuns(h))
	for path, want := range gone {
		if got := !there(t, path); got != want {
			t.Errorf("%s: gone %v, want %v", path, got, want)
		}
		if !want && !there(t, filepath.Join(path, "lock")) {
			t.Errorf("%s stays, but not whole", path)
		}
	}
}

// TestI13_OnlyOwnHomesAreAdopted: one from before there was a marker, or whose marker a kill cut short, is. A directory
// of the user's is refused, with the remedy and untouched.
func TestI13_OnlyOwnHomesAreAdopted(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0123456789abcdef", 4)
	warm := "warm-" + digest[:24]
	old := func() map[string]maker {
		return map[string]maker{
			"run": dir(map[string]maker{"sb-0123456789ab": dir(map[string]maker{"lock": file(""), "upper.ext4": file("")})}), "kept": dir(map[string]maker{"sb-0123456789ac": dir(map[string]maker{"console.log": file("")})}),
			"sandboxes": dir(map[string]maker{"web-1": dir(map[string]maker{"sandbox.json": file("{}"), "ca.pem": file(""), "lock": file(""), ".run.json1": file("")}), ".0123456789ab": dir(nil)}),
			"kernel":    dir(map[string]maker{"kernel-" + digest + ".elf": file(""), "kernel-0123456789abcdef.index": file(""), ".kernel-" + digest + ".elf12": file(""), warm: file(""), warm + ".failed": file(""), warm + ".share-" + staging: socket}),
			"guest":     dir(map[string]maker{"agentd-0123456789abcdef.ext4": file(""), ".new-123": file("")}),
			"images": dir(map[string]maker{
				"disks": dir(map[string]maker{"sha256-" + digest: dir(map[string]maker{"disk.ext4": file(""), "meta.json": file("{}")})}),
				"refs":  dir(map[string]maker{digest + ".json": file("{}")}), "locks": dir(map[string]maker{"sha256-" + digest + ".lock": file("")}),
				"tmp": dir(map[string]maker{staging: dir(map[string]maker{"spool12": file("")}), staging + ".lock": file("")}),
			}),
		}
	}
	with := func(name string, put maker) maker {
		entries := old()
		entries[name] = put
		return dir(entries)
	}
	adopted := map[string]maker{"empty": dir(nil), "of an older msb": dir(old()), "only caches": dir(map[string]maker{"guest": dir(nil)})}
	for n := range len(markerText) + 1 {
		adopted[fmt.Sprintf("killed after %d bytes of the marker", n)] = dir(map[string]maker{markerFile: file(markerText[:n])})
	}
	outside := filepath.Join(t.TempDir(), "outside")
	dir(map[string]maker{"x": file(""), "marker": file(markerText)})(t, outside)
	junk := dir(map[string]maker{"x": file("")})
	refused := map[string]maker{
		"a file": with("notes.txt", file("x")), "a dot file": with(".bashrc", file("x")), "a directory": with("src", dir(nil)), "only a file": dir(map[string]maker{"x": file("")}),
		"run is a link": with("run", link(outside)), "images is a link": with("images", link(outside)), "run is a file": with("run", file("")),
		"a wrong marker": with(markerFile, file("mine")), "a longer marker": with(markerFile, file(markerText+"\n")), "a marker that is a link": with(markerFile, link(filepath.Join(outside, "x"))),
		"a link to a marker":           with(markerFile, link(filepath.Join(outside, "marker"))),
		"a marker that is a directory": with(markerFile, dir(nil)), "a marker that is a pipe": with(markerFile, fifo),
		"a run of another name": with("run", dir(map[string]maker{"sb-1": dir(nil)})), "a file in a run": with("run", dir(map[string]maker{"sb-0123456789ab": junk})),
		"a sandbox of another name": with("sandboxes", dir(map[string]maker{"Web": dir(nil)})), "a file in a sandbox": with("sandboxes", dir(map[string]maker{"web": junk})),
		"photos in images": with("images", dir(map[string]maker{"a.jpg": file("")})), "a link in images": with("images", dir(map[string]maker{"tmp": link(outside)})),
		"a file in kept": with("kept", dir(map[string]maker{"sb-0123456789ab": junk})), "another kernel": with("kernel", junk), "another socket": with("kernel", dir(map[string]maker{"x": socket})), "a socket in a kernel's place": with("kernel", dir(map[string]maker{warm: socket})),
		"a file in a socket's place": with("kernel", dir(map[string]maker{warm + ".share-" + staging: file("")})), "another guest": with("guest", dir(map[string]maker{"agentd-1.ext4": file("")})),
	}
	for name, make := range adopted {
		path := filepath.Join(t.TempDir(), "home")
		make(t, path)
		for range 2 {
			if _, err := OpenHome(path); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b, err := os.ReadFile(filepath.Join(path, markerFile)); err != nil || string(b) != markerText {
			t.Errorf("%s: its marker is %q, %v", name, b, err)
		}
	}
	for name, make := range refused {
		path := filepath.Join(t.TempDir(), "home")
		make(t, path)
		before := listing(t, path)
		_, err := OpenHome(path)
		if !errors.Is(err, ErrHome) || !strings.Contains(err.Error(), EnvHome) || KindOf(err) != KindOther {
			t.Errorf("%s: %v; want ErrHome and the remedy", name, err)
		}
		if after := listing(t, path); !slices.Equal(after, before) {
			t.Errorf("%s: it was %q and is %q", name, before, after)
		}
	}
	if got := listing(t, outside); !slices.Equal(got, []string{"", "/marker", "/x"}) {
		t.Errorf("behind a link: %q", got)
	}
}

// listing is the names below a directory.
func listing(t *testing.T, root string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(tree(t, root)))
}

// TestI13_RemovalKeepsForeignFiles: a file that the user put beside a sandbox's or a volume's disk, and a link in the place of
// a sandbox's directory. The disk stays too, under its name.
func TestI13_RemovalKeepsForeignFiles(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	notes := namedPath(h, "web", "notes.txt")
	file("x")(t, notes)
	if err := h.Remove(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "notes.txt") || !there(t, notes) || !there(t, namedPath(h, "web", state.UpperDisk)) {
		t.Errorf("%v; want the file named, and all of it there", err)
	}
	must(t, os.Remove(notes))
	must(t, h.Remove(t.Context(), "web"))

	must(t, h.Volumes().Create("data", 16<<20))
	notes = state.VolumePath(h.dir, "data", "notes.txt")
	file("x")(t, notes)
	before := listing(t, h.dir)
	if err := h.Volumes().Remove("data"); err == nil || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("a volume: %v; want the file named", err)
	}
	if _, err := h.Volumes().Inspect("data"); err != nil {
		t.Errorf("the volume that stays has gone: %v", err)
	}
	if after := listing(t, h.dir); !slices.Equal(after, before) {
		t.Errorf("a volume: %q, was %q", after, before)
	}
	must(t, os.Remove(notes))
	must(t, h.Volumes().Remove("data"))

	must(t, aNamed(t, h, "web"))
	moved := filepath.Join(t.TempDir(), "moved")
	must(t, os.Rename(namedPath(h, "web"), moved))
	must(t, os.Symlink(moved, namedPath(h, "web")))
	file("x")(t, filepath.Join(moved, state.InfoFile))
	before = listing(t, moved)
	_, start := StartNamed(t.Context(), "web", StartOptions{Home: h.dir})
	_, inspect := h.Inspect("web")
	for what, err := range map[string]error{"rm": h.Remove(t.Context(), "web"), "stop": h.Stop(t.Context(), "web"), "inspect": inspect, "start": start} {
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "link") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := listing(t, moved); !slices.Equal(after, before) {
		t.Errorf("behind the link: %q, was %q", after, before)
	}
}

// TestI13_SweepsFollowNoLinkedDirectory: a directory of the home becomes a link once the home is open.
func TestI13_SweepsFollowNoLinkedDirectory(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	runs, outside := filepath.Join(h.dir, state.RunsDir), filepath.Join(t.TempDir(), "runs")
	dir(map[string]maker{"sb-0123456789ab": dir(map[string]maker{"lock": file("")})})(t, outside)
	must(t, os.Remove(runs))
	link(outside)(t, runs)
	if err := sweepRuns(h); err == nil {
		t.Error("the link is swept without an error")
	}
	if !there(t, filepath.Join(outside, "sb-0123456789ab")) {
		t.Error("a run behind the link is gone")
	}
	must(t, os.Remove(runs))
	must(t, os.Rename(outside, runs))
	must(t, sweepRuns(h))
	if there(t, filepath.Join(runs, "sb-0123456789ab")) { // the twin: the same run, behind no link
		t.Error("an abandoned run stays")
	}
}
