package grants_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// TestI15_GrantsListEachUse has a policy with everything that can be done with a secret, each on its own.
func TestI15_GrantsListEachUse(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	both := strings.Replace(secretFrom(`"env:T"`), "in = [\"basic\"]", "in = [\"basic\", \"body\"]", 1)
	both = strings.Replace(both, "hosts = [\"a.example\"]\nin", "hosts = [\"a.example\", \"b.example\"]\nin", 1)
	for _, c := range []struct{ text, want string }{
		{secretFrom(`"env:T"`), `secret T: variable T to a.example in "basic"`},
		{both, `secret T: variable T to a.example in "basic", a.example in "body", b.example in "basic", b.example in "body"`},
		{secretFrom(`"env:T"`, `on_violation = "terminate"`), `secret T: variable T, a violation ends the sandbox to a.example in "basic"`},
		{secretFrom(`"command:no-such-program x"`, `ttl = "1m"`, "refresh_on_401 = true"),
			`secret T: command no-such-program x, whose program isn't there, read again every 1m0s, read again after a 401 to a.example in "basic"`},
		{secretFrom(`"env:T"`, `upgrades = ["spdy/3.1"]`), `secret T: variable T, unmasked after an upgrade to ["spdy/3.1"] to a.example in "basic"`},
		{secretFrom(`"env:T"`, `mint = {path = "/t", fields = ["token"]}`), `secret T: variable T, mints ["token"] of "/t" to a.example in "basic"`},
		{secretFrom(`"file:none"`), `secret T: file "` + dir + `/none", which isn't there to a.example in "basic"`},
		{head + "[[tls.extra_ca]]\nfile = \"" + dir + "/none\"\nhosts = [\"a.example\", \"b.example\"]\n",
			`roots "` + dir + `/none", which can't be read to a.example, b.example`},
		{head + "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\", \"10.9.0.0/16\"]\nports = [22]\nprivate = true\n", "private range 10.0.0.0/8\nprivate range 10.9.0.0/16"},
	} {
		set, _ := of(t, put(t, dir, "p.toml", c.text, 0o600))
		if got := set.String(); got != c.want {
			t.Errorf("%s\ngives %s\nwant  %s", c.text, got, c.want)
		}
	}
}

// TestI15_InterpretersAreRecognised has programs elsewhere, by all forms of their names, with plain arguments.
func TestI15_InterpretersAreRecognised(t *testing.T) {
	t.Parallel()
	bin, tree := realDir(t), realDir(t)
	for name, runs := range map[string]bool{
		"sh": true, "BASH": true, "python3.12": true, "python3": true, "perl5.36-x86_64-linux-gnu": true, "lua-5.4": true, "busybox-static": true,
		"m4": true, "i386": true, "linux32": true, "ld-linux-x86-64.so.2": true, "ld-musl-x86_64.so.1": true, "bash5-static": true,
		"cat": false, "printf": false, "shred": false, "pass": false, "7z": false, "sha256sum": false, "op": false, "login-sh": false,
	} {
		program := put(t, bin, name, "", 0o700)
		_, p := of(t, put(t, tree, "p.toml", secretFrom(`"command:`+program+` word"`), 0o600))
		hold := p.Secrets[0].From.Hold
		if hold == nil || hold.Content != "" != runs || hold.Dir == "/" == runs || hold.Path != program {
			t.Errorf("%s is held by %+v; runs others: %t", name, hold, runs)
		}
		if dir := grants.DirOf(p, p.Secrets[0].From); dir != map[bool]string{true: tree}[runs] {
			t.Errorf("%s runs in %q", name, dir)
		}
	}
}

// TestI15_LongArgumentsAreCode has arguments, scripts and roots of the largest size, and a byte more.
func TestI15_LongArgumentsAreCode(t *testing.T) {
	t.Parallel()
	for over := range 2 {
		dir := realDir(t)
		program := put(t, realDir(t), "show", "", 0o700)
		_, p := of(t, put(t, dir, "p.toml", secretFrom(`"command:`+program+` `+strings.Repeat("a", 256+over)+`"`), 0o600))
		if hold := p.Secrets[0].From.Hold; hold.Content != "" != (over > 0) {
			t.Errorf("%d over: %+v", over, hold)
		}
		script := put(t, dir, "login", "#!/bin/sh\n"+strings.Repeat("#", 1<<20-10+over), 0o700)
		_, p = of(t, put(t, dir, "p.toml", secretFrom(`"command:`+script+`"`), 0o600))
		if hold := p.Secrets[0].From.Hold; hold.Program != "" != (over == 0) || hold.Content != "" != (over > 0) {
			t.Errorf("script, %d over: %+v", over, hold)
		}
		roots := put(t, dir, "roots", strings.Repeat("#", 4<<20+over), 0o600)
		set, p := of(t, put(t, dir, "p.toml", head+"[[tls.extra_ca]]\nfile = \""+roots+"\"\nhosts = [\"a.example\"]\n", 0o600))
		if strings.Contains(set.String(), "can't be read") != (over > 0) || (p.TLS.ExtraCA[0].PEM == nil) != (over > 0) {
			t.Errorf("roots, %d over: %s", over, set)
		}
	}
}

// TestI15_HoldsSurviveThePolicysText: what Of found is put back into a policy that was read from its text.
func TestI15_HoldsSurviveThePolicysText(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	put(t, dir, "token", "x", 0o600)
	put(t, dir, "ca.pem", "roots", 0o600)
	text := secretFrom(`"file:token"`) + "[secrets.FREE]\nfrom = \"env:X\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n" +
		"[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"a.example\"]\n[[tls.extra_ca]]\nfile = \"none.pem\"\nhosts = [\"b.example\"]\n"
	path := put(t, dir, "p.toml", text, 0o600)
	_, held := of(t, path)
	again, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	holds := grants.HoldsOf(held)
	if len(holds.Secrets) != 1 || len(holds.Roots) != 1 {
		t.Errorf("%+v", holds)
	}
	holds.Apply(again)
	for i, s := range again.Secrets {
		if (s.From.Hold != nil) != (s.Name == "T") || s.From.Hold != held.Secrets[i].From.Hold {
			t.Errorf("%s is held by %+v, was %+v", s.Name, s.From.Hold, held.Secrets[i].From.Hold)
		}
	}
	if got := again.TLS.ExtraCA; string(got[0].PEM) != "roots" || got[1].PEM != nil {
		t.Errorf("roots %q, %q", got[0].PEM, got[1].PEM)
	}
}

// TestI15_HeldFilesAreOpenedWithoutLinks reads a source again after its writer put a link in its way.
func TestI15_HeldFilesAreOpenedWithoutLinks(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	file := put(t, dir, "sub/token", "approved", 0o600)
	script := put(t, dir, "sub/login", "#!/bin/sh\necho approved\n", 0o700)
	_, p := of(t, put(t, dir, "p.toml", secretFrom(`"file:`+file+`"`), 0o600))
	_, q := of(t, put(t, dir, "p.toml", secretFrom(`"command:`+script+`"`), 0o600))
	source, hold := &p.Secrets[0].From, q.Secrets[0].From.Hold
	read := func(f *os.File, err error) string {
		if err != nil {
			return "refused"
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		return fmt.Sprintf("%s%v", b, err)
	}
	if got := read(grants.Open(source)); got != "approved<nil>" {
		t.Errorf("the file: %s", got)
	}
	free := policies.Source{Kind: policies.FromFile, Value: put(t, dir, "free", "free", 0o600)}
	if got := read(grants.Open(&free)); got != "free<nil>" {
		t.Errorf("a file that is not held: %s", got)
	}
	copied, err := grants.Copy(hold)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copied.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the copy was written to")
	}
	if got := read(copied, nil); got != "#!/bin/sh\necho approved\n<nil>" {
		t.Errorf("the copy: %s", got)
	}
	put(t, dir, "sub/login", "#!/bin/sh\necho evil\n", 0o700)
	if got := read(grants.Copy(hold)); got != "refused" {
		t.Errorf("a script that changed: %s", got)
	}
	put(t, dir, "sub/login", "#!/bin/sh\necho approved\n", 0o700)
	for _, name := range []string{"sub/token", "sub/login", "sub"} { // the file itself, then a directory above it
		moved := filepath.Join(dir, name) + ".moved"
		if err := os.Rename(filepath.Join(dir, name), moved); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(moved, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if got := read(grants.Open(source)); name != "sub/login" && got != "refused" {
			t.Errorf("%s is a link: the file is %s", name, got)
		}
		if got := read(grants.Copy(hold)); name != "sub/token" && got != "refused" {
			t.Errorf("%s is a link: the script is %s", name, got)
		}
		if name != "sub" {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(moved, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestI14_FilesAreOpenedWithinTheirDirectory: a link that leads out is refused, and its twin, a source that isn't held, follows it.
func TestI14_FilesAreOpenedWithinTheirDirectory(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	outside := put(t, realDir(t), "shadow", "outside", 0o600)
	put(t, dir, "..1/token", "within", 0o600)
	for link, to := range map[string]string{"in": "..1/token", "out": outside, "up": "../" + filepath.Base(filepath.Dir(outside)) + "/shadow"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(name string, h *policies.Hold) string {
		f, err := grants.Open(&policies.Source{Kind: policies.FromFile, Value: filepath.Join(dir, name), Hold: h})
		if err != nil {
			return "refused"
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(f)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	for name, want := range map[string]string{"..1/token": "within", "in": "within", "out": "refused", "up": "refused", "../x": "refused", "pipe": ""} {
		if got := read(name, &policies.Hold{Within: dir}); got != want {
			t.Errorf("%s: read %q, want %q", name, got, want)
		}
	}
	if got := read("out", nil); got != "outside" {
		t.Errorf("a source that isn't held: read %q", got)
	}
}

// TestI15_ProgramsAreLookedForOutside has programs of one name in several directories of PATH.
func TestI15_ProgramsAreLookedForOutside(t *testing.T) {
	tree, none, directory, outside := realDir(t), realDir(t), realDir(t), realDir(t)
	put(t, tree, "bin/tool", "", 0o700)
	put(t, none, "tool", "", 0o600)
	put(t, directory, "tool/x", "", 0o600)
	want := put(t, outside, "tool", "", 0o700)
	link := filepath.Join(realDir(t), "link")
	if err := os.Symlink(filepath.Join(tree, "bin"), link); err != nil {
		t.Fatal(err)
	}
	path := []string{"bin", "", link, filepath.Join(tree, "bin"), none, directory, outside}
	t.Chdir(tree)
	t.Setenv("PATH", strings.Join(path, ":"))
	if got, err := grants.LookPath("tool", []string{tree}); got != want || err != nil {
		t.Errorf("found %q, %v; want %q", got, err, want)
	}
	if got, err := grants.LookPath("tool", nil); got != filepath.Join(link, "tool") || err != nil {
		t.Errorf("without trees: found %q, %v", got, err)
	}
	for _, name := range []string{"none", filepath.Join(none, "tool"), filepath.Join(directory, "tool")} {
		if got, err := grants.LookPath(name, nil); err == nil {
			t.Errorf("%s: found %q", name, got)
		}
	}
	if got, err := grants.LookPath("./bin/tool", nil); got != filepath.Join(tree, "bin/tool") || err != nil {
		t.Errorf("a path: %q, %v", got, err)
	}
	got := grants.Environ([]string{"A=b", "PATH=x", "HOME=" + tree, "LD_PRELOAD=" + tree + "/lib.so", "LIST=/usr:" + tree + "/x", "PERL5OPT=-I" + tree, "OPTIONS=--import=\"" + tree + "/x y\"", "URL=https://example.com/x", "TERM=xterm"}, []string{tree})
	if want := []string{"A=b", "PATH=" + strings.Join([]string{none, directory, outside}, ":"), "HOME=" + tree, "URL=https://example.com/x", "TERM=xterm"}; !slices.Equal(got, want) {
		t.Errorf("variables %q, want %q", got, want)
	}
}
