package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/hostdir"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const privateKey = "-----BEGIN PRIVATE KEY-----\n"

// writeTree writes files below a new directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for p, text := range files {
		p = filepath.Join(dir, p)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(text), 0o600))
	}
	return dir
}

// TestI15_FloodsUncoverNoCredentials has a guest make so many files that the search ends before the credentials, or so many
// that look like some that they can't be hidden one by one. Its twin is the same directory without the guest's files.
func TestI15_FloodsUncoverNoCredentials(t *testing.T) {
	t.Parallel()
	holding := map[string]string{
		"tls/server.key": privateKey, "tls/a.pem": privateKey, ".env.local": "API_KEY=abcdefghij", ".npmrc": "//r/:_authToken=x", "sub/.npmrc": "//r/:_authToken=x",
		".git/config": "url = https://me:token@example.com/x", "a/b/c/.git/config": "url = https://me:token@example.com/x", "a/.docker/config.json": `{"auth": "x"}`, "x/.aws/credentials": "", ".ssh/id_rsa": "",
	}
	harmless := []string{"README", "src/x.go", "tls/cert.crt", ".git/HEAD"}
	byContent := []string{"tls/ca.pem", "plain/.git/config", ".env.example"} // hidden only where nobody looks
	files := map[string]string{}
	for p, text := range holding {
		files[p] = text
	}
	for _, p := range slices.Concat(harmless, byContent) {
		files[p] = "x"
	}
	for name, flood := range map[string]func(dir string) (most int){
		"no flood": func(string) int { return maxLooked },
		"files": func(dir string) int {
			for i := range 100 {
				must(t, os.WriteFile(filepath.Join(dir, "..0", fmt.Sprint(i)), nil, 0o600))
			}
			return 60
		},
		"credentials": func(dir string) int {
			for i := range maxFound + 1 {
				must(t, os.WriteFile(filepath.Join(dir, "..0", fmt.Sprint(i, ".pem")), []byte(privateKey), 0o600))
			}
			return maxLooked
		},
	} {
		dir := writeTree(t, files)
		must(t, os.Mkdir(filepath.Join(dir, "..0"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "..0", "own.pem"), []byte(privateKey), 0o600))
		var told []string
		c := &Config{Directories: []Directory{{Host: dir, Guest: "/work"}}, HideCredentials: true, Notice: func(s string) { told = append(told, s) }}
		c.searchDirectories(nil, flood(dir))
		patterns := c.hidden()
		for p := range holding {
			if !hostdir.NewHiding(patterns).Hides(p) {
				t.Errorf("%s: the guest sees %s", name, p)
			}
		}
		for _, p := range harmless {
			if hostdir.NewHiding(patterns).Hides(p) {
				t.Errorf("%s: %s is hidden", name, p)
			}
		}
		flooded := name != "no flood"
		for _, p := range byContent {
			if hostdir.NewHiding(patterns).Hides(p) != flooded {
				t.Errorf("%s: %s is hidden %t", name, p, !flooded)
			}
		}
		if (len(told) == 1 && strings.Contains(told[0], "*.pem")) != flooded || len(patterns) > 100 {
			t.Errorf("%s: told %q, %d patterns", name, told, len(patterns))
		}
		if s, err := hostdir.New(dir, hostdir.Options{Hide: patterns}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			must(t, s.Close())
		}
	}
}

// TestI15_UnsearchedDirectoriesAreHiddenByName, and stay so at later starts: nobody looked at what is in them. Up to a bound,
// what was found is hidden one by one.
func TestI15_UnsearchedDirectoriesAreHiddenByName(t *testing.T) {
	t.Parallel()
	for found, byName := range map[int]bool{-1: true, maxFound: false, maxFound + 1: true} {
		dir := filepath.Join(t.TempDir(), "not there yet")
		files := map[string]string{"plain.pem": "x"}
		for i := range found {
			files[fmt.Sprintf("%d.pem", i)] = privateKey
		}
		if found >= 0 {
			dir = writeTree(t, files)
		}
		c := &Config{Directories: []Directory{{Host: dir, Guest: "/work"}}, HideCredentials: true, Notice: func(string) {}}
		c.searchDirectories(nil, maxLooked)
		if hides := hostdir.NewHiding(c.hidden()).Hides("plain.pem"); hides != byName {
			t.Errorf("%d found: hidden by name %t", found, hides)
		}
		before := c.credentials
		c.Directories[0].Host = t.TempDir()
		c.searchDirectories(before, maxLooked)
		if hides := hostdir.NewHiding(c.hidden()).Hides("plain.pem"); hides != byName {
			t.Errorf("%d found before: hidden by name %t", found, hides)
		}
	}
}

// TestI15_FoundCredentialsStayHidden starts a sandbox with a name several times; what a start found stays hidden whatever it
// looks like at the next. A sandbox of its own finds what is there.
func TestI15_FoundCredentialsStayHidden(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"tls/server.key": privateKey, "tls/open.key": "x"})
	h := newHome(t)
	cfg := Config{Name: "n", Disk: 64 << 20, Policy: policies.Default(), Image: "dir:/nosuch", HideCredentials: true, Directories: []Directory{{Host: dir, Guest: "/work", Writable: true}}}
	must(t, cfg.fill())
	for _, name := range []string{"n", "other"} {
		lock, err := makeNamed(h, newStored(name, &cfg, &image.Image{Digest: "sha256:0"}, &Admission{}))
		must(t, err)
		must(t, lock.Close())
	}
	hidden := func(name string) []string {
		run, err := lockNamed(h, name)
		must(t, err)
		_, _, _, _ = prepareStart(t.Context(), h, run, StartOptions{}) // its image isn't there
		must(t, run.lock.Close())
		st, err := loadStored(h, name)
		must(t, err)
		return credentialPatterns(st.Credentials)
	}
	if got := hidden("n"); !hostdir.NewHiding(got).Hides("tls/server.key") || hostdir.NewHiding(got).Hides("tls/open.key") {
		t.Errorf("the first start hides %q", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "tls/server.key"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls/later.key"), []byte(privateKey), 0o600))
	for range 2 {
		if got := hidden("n"); !hostdir.NewHiding(got).Hides("tls/server.key") || !hostdir.NewHiding(got).Hides("tls/later.key") || hostdir.NewHiding(got).Hides("tls/open.key") {
			t.Errorf("a later start hides %q", got)
		}
	}
	if got := hidden("other"); hostdir.NewHiding(got).Hides("tls/server.key") || !hostdir.NewHiding(got).Hides("tls/later.key") {
		t.Errorf("another sandbox hides %q", got)
	}
}

// TestI15_HiddenCredentialsAreNotChanged: the guest never saw them, and has removed .env from the directory and made one of
// its own in sub. The twin is a sandbox from which nothing is hidden.
func TestI15_HiddenCredentialsAreNotChanged(t *testing.T) {
	t.Parallel()
	for _, hide := range []bool{true, false} {
		dir := writeTree(t, map[string]string{".env": "A=b", "sub/.env": "A=b"})
		var found *state.Credentials
		if hide {
			found = &state.Credentials{}
		}
		g := &layerGuest{at: "/work", layer: &agentpb.ChangesResponse{Entries: []*agentpb.LayerEntry{
			{Path: []byte(".env"), Mode: unix.S_IFCHR, Whiteout: true}, {Path: []byte("sub"), Mode: aDirectory}, {Path: []byte("sub/.env"), Mode: aFile},
		}}}
		d := theChanges(t, layered(t, Config{HideCredentials: hide, Directories: []Directory{{Host: dir, Guest: "/work", CopyOnWrite: true}}}, found, g))
		var got []string
		for _, c := range d.Changes {
			final := c.Refused(func(string) bool { return true })
			got = append(got, fmt.Sprintf("%s %s %t", c.Path, c.Kind, final != nil))
		}
		want := []string{".env deleted false", "sub/.env modified false"}
		if hide {
			want = []string{"sub/.env added true"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("hidden %t: %q, want %q", hide, got, want)
		}
	}
}

// TestI15_UnreadableFilesStayHidden has a guest take the modes away that the search needs; it could give them back later.
func TestI15_UnreadableFilesStayHidden(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string]string{"tls/server.key": privateKey, "a.key": privateKey, "open/x": "x"})
	must(t, os.Chmod(filepath.Join(dir, "tls"), 0))
	must(t, os.Chmod(filepath.Join(dir, "a.key"), 0))
	defer func() { must(t, os.Chmod(filepath.Join(dir, "tls"), 0o700)) }()
	if os.Geteuid() == 0 { // which reads whatever the modes are: this thread is somebody else to the file system
		const nobody = 65534
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		must(t, os.Chmod(dir, 0o755))
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		must(t, unix.Setfsuid(nobody))
		defer func() { must(t, unix.Setfsuid(0)) }()
		if f, err := os.Open(dir); err != nil {
			t.Skipf("nobody else reads temporary directories here: %v", err)
		} else {
			must(t, f.Close())
		}
	}
	c := &Config{Directories: []Directory{{Host: dir, Guest: "/work"}}, HideCredentials: true}
	if got := c.hidden(); !hostdir.NewHiding(got).Hides("tls/server.key") || !hostdir.NewHiding(got).Hides("a.key") || hostdir.NewHiding(got).Hides("open/x") {
		t.Errorf("hidden: %q", got)
	}
}
