package grants_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// put writes a file below dir and returns its path.
func put(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// realDir is a directory of the test's own, without links in its path.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// of loads the policy at path and returns what it takes.
func of(t *testing.T, path string) (grants.Set, *policies.Policy) {
	t.Helper()
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	set, held, err := grants.Of(p, grants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set, held
}

const head = "version = 1\n"

const web = "[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\", \"b.example\"]\n"

// secretFrom is a policy with one secret.
func secretFrom(from string, lines ...string) string {
	return head + web + "[secrets.T]\nfrom = " + from + "\nhosts = [\"a.example\"]\nin = [\"basic\"]\n" + strings.Join(lines, "\n") + "\n"
}

// inside is a policy with a rule for a name that leads inside.
func inside(host, within string) string {
	return head + "[[egress.allow]]\nhosts = [\"" + host + "\"]\nwithin = [\"" + within + "\"]\n"
}

func TestI15_GrantsListWhatPoliciesTake(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	put(t, dir, "ca.pem", "roots", 0o600)
	put(t, dir, "shared/x.toml", head, 0o600)
	for _, c := range []struct {
		name, text string
		want       grants.Kind // "" for nothing
	}{
		{"rules", head + "include = [\"pypi\"]\n" + web, ""},
		{"public range", head + "[[egress.allow]]\ncidrs = [\"8.8.8.0/24\"]\nports = [22]\n", ""},
		{"denied private range", head + "[[egress.deny]]\ncidrs = [\"10.0.0.0/8\"]\n", ""},
		{"builtin target", head + "[hosts]\n\"x.internal\" = \"builtin:echo\"\n", ""},
		{"builtin image", head + "[sandbox]\nimage = \"builtin\"\n", ""},
		{"the host's resolver", head + "[dns]\nservers = [\"system\"]\n", ""},
		{"image of a registry", head + "[sandbox]\nimage = \"alpine:3.20\"\n", ""},
		{"variable", secretFrom("\"env:AWS_SECRET_ACCESS_KEY\""), grants.Secret},
		{"file", secretFrom("\"file:/etc/hostname\""), grants.Secret},
		{"file beside the policy", secretFrom("\"file:token\""), grants.Secret},
		{"command", secretFrom("\"command:true\""), grants.Secret},
		{"layout", head + "[sandbox]\nimage = \"oci:/x\"\n", grants.Image},
		{"archive", head + "[sandbox]\nimage = \"docker-archive:/x\"\n", grants.Image},
		{"directory", head + "[sandbox]\nimage = \"dir:.\"\n", grants.Image},
		{"private range", head + "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [22]\nprivate = true\n", grants.Private},
		{"range of a name", inside("wiki.corp.example", "10.0.0.0/8"), grants.Private},
		{"public ranges of a name", inside("wiki.corp.example", "0.0.0.0/0\", \"8.8.8.0/24"), ""},
		{"an address of the host that looks public", head + "[[egress.allow]]\ncidrs = [\"8.8.8.8/32\"]\nports = [22]\nprivate = true\n", grants.Private},
		{"target", head + "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", grants.Target},
		{"resolver", head + "[dns]\nservers = [\"system\", \"udp://10.0.0.1\"]\n", grants.Resolver},
		{"resolver by name", head + "[dns]\nservers = [\"https://dns.example/dns-query\"]\n", grants.Resolver},
		{"proxy", head + "[tls]\nvia = \"http://10.0.0.1:3128\"\n", grants.Proxy},
		{"roots", head + "[[tls.extra_ca]]\nfile = \"ca.pem\"\nhosts = [\"a.example\"]\n", grants.Roots},
		{"include", head + "include = [\"../shared/x.toml\"]\n", grants.Include},
	} {
		set, _ := of(t, put(t, dir, "mine/p.toml", c.text, 0o600))
		set = set.Beyond(nil)
		switch {
		case c.want == "" && len(set) != 0, c.want != "" && (len(set) != 1 || set[0].Kind != c.want):
			t.Errorf("%s: %q, want one of kind %q", c.name, set, c.want)
		}
	}
}

// Each change on the right takes more than what is on the left, and has to be approved.
func TestI15_EachExtensionNeedsApproval(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	const env = "\"env:T\""
	private := func(cidr string) string {
		return head + "[[egress.allow]]\ncidrs = [\"" + cidr + "\"]\nports = [22]\nprivate = true\n"
	}
	for _, c := range []struct {
		name, was, is string
		asks          bool
	}{
		{"the same", secretFrom(env), secretFrom(env), false},
		{"rules", secretFrom(env), strings.Replace(secretFrom(env), "hosts = [\"a.example\", \"b.example\"]", "hosts = [\"a.example\", \"c.example\"]\nmethods = [\"GET\"]", 1), false},
		{"another variable", secretFrom(env), secretFrom("\"env:U\""), true},
		{"another host", secretFrom(env), strings.Replace(secretFrom(env), "hosts = [\"a.example\"]\nin", "hosts = [\"b.example\"]\nin", 1), true},
		{"one host less", strings.Replace(secretFrom(env), "hosts = [\"a.example\"]\nin", "hosts = [\"a.example\", \"b.example\"]\nin", 1), secretFrom(env), false},
		{"another place", secretFrom(env), strings.Replace(secretFrom(env), "basic", "body", 1), true},
		{"one place less", strings.Replace(secretFrom(env), "\"basic\"", "\"body\", \"basic\"", 1), secretFrom(env), false},
		{"mint", secretFrom(env), secretFrom(env, "mint = {path = \"/t\", fields = [\"token\"]}"), true},
		{"mint dropped", secretFrom(env, "mint = {path = \"/t\", fields = [\"token\"]}"), secretFrom(env), true},
		{"upgrades", secretFrom(env), secretFrom(env, "upgrades = [\"spdy/3.1\"]"), true},
		{"violation", secretFrom(env, "on_violation = \"terminate\""), secretFrom(env), true},
		{"ttl", secretFrom("\"command:true\""), secretFrom("\"command:true\"", "ttl = \"1s\""), true},
		{"refresh", secretFrom("\"command:true\""), secretFrom("\"command:true\"", "refresh_on_401 = true"), true},
		{"another argument", secretFrom("\"command:printf x\""), secretFrom("\"command:printf y\""), true},
		{"arguments joined", secretFrom("[\"command:printf\", \"x\", \"y\"]"), secretFrom("[\"command:printf\", \"x y\"]"), true},
		{"range within", private("10.0.0.0/8"), private("10.20.0.0/16"), false},
		{"range around", private("10.20.0.0/16"), private("10.0.0.0/8"), true},
		{"name within", private("10.0.0.0/8"), inside("wiki.corp.example", "10.20.0.0/16"), false},
		{"name within its range", inside("wiki.corp.example", "10.0.0.0/8"), inside("wiki.corp.example", "10.20.0.0/16"), false},
		{"name below", inside("*.corp.example", "10.0.0.0/8"), inside("wiki.corp.example", "10.0.0.0/8"), false},
		{"name around", inside("wiki.corp.example", "10.0.0.0/8"), inside("*.corp.example", "10.0.0.0/8"), true},
		{"another name", inside("wiki.corp.example", "10.0.0.0/8"), inside("evil.example", "10.0.0.0/8"), true},
		{"name's range around", inside("wiki.corp.example", "10.20.0.0/16"), inside("wiki.corp.example", "10.0.0.0/8"), true},
		{"range for everybody", inside("wiki.corp.example", "10.0.0.0/8"), private("10.20.0.0/16"), true},
		{"metadata of a name", inside("wiki.corp.example", "169.254.0.0/16"), inside("wiki.corp.example", "169.254.169.254/32"), true},
		{"metadata within", private("169.254.0.0/16"), private("169.254.169.254/32"), true},
		{"target of another port", head + "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", head + "[hosts]\n\"x.internal\" = \"127.0.0.1:81\"\n", true},
	} {
		path := put(t, dir, "p.toml", c.was, 0o600)
		was, _ := of(t, path)
		put(t, dir, "p.toml", c.is, 0o600)
		is, _ := of(t, path)
		if got := len(is.Beyond(was)) > 0; got != c.asks {
			t.Errorf("%s: asks %v for %q", c.name, got, is.Beyond(was))
		}
	}
	if (grants.Set{{Kind: grants.Private, What: "10.0.0.0/8"}}).Has(grants.Grant{Kind: grants.Image, What: "10.1.0.0/16"}) {
		t.Error("a range covers something else")
	}
}

// commandForms run tool in the directory %t one way or another.
var commandForms = []string{
	`"command:./tool"`,
	`"command:./bin/../tool x"`,
	`"command:%t/tool"`,
	`"command:link/tool"`,
	`"command:sh tool"`,
	`"command:/bin/sh %t/tool"`,
	`["command:sh", "-c", "./tool"]`,
	`["command:sh", "-c", "cd %t; ./tool"]`,
	`["command:sh", "-c", "cd %u/tr*; ./to*"]`,
	`["command:sh", "-c", "cd %u'/tr'ee && . ./tool"]`,
	`["command:bash", "-c", "exec $(echo ./tool)"]`,
	`"command:env -C %t ./tool"`,
	`"command:env -C%u/tree ./tool"`,
	`"command:env PATH=%t tool"`,
	`"command:timeout 5 %u//tree/./tool"`,
	`"command:printf %t/tool"`,
	`"command:printf --file=%t/tool"`,
	`"command:printf @%t/tool"`,
	`"command:printf %u/other/../tree/tool"`,
	`"command:printf %u/outside-link/tool"`,
	`"command:printf %r/tool"`,
	`"command:printf -f%r/tool"`,
	`"command:printf %u"`,
	`"command:make -C %t"`,
	`"command:npm --prefix %t run tool"`,
	`"command:python3.11 %t/tool"`,
	`"command:perl -edo+v47.104"`,
	`"command:%u/outside-tool"`,
	`"command:%u/bin/indirect x"`,
	`["command:printf", "%u/a=tool x"]`,
	`"command:%u/frob tool"`,
	`"command:printf /proc/self/cwd%t/tool"`,
	`"command:printf /proc/thread-self/cwd/%r/tool"`,
	`"command:printf --in=/dev/fd/3/tool"`,
	`"command:taskset 1 tool"`,
	`"command:%u/perl5.36-x86_64-linux-gnu q-home-"`,
	`"command:%u/bash-static x"`,
}

func TestI15_ChangedProgramsInTheTreeAsk(t *testing.T) {
	t.Parallel()
	for _, form := range commandForms {
		top := realDir(t)
		tree := filepath.Join(top, "tree")
		tool := put(t, tree, "tool", "#!/bin/sh\necho one\n", 0o700)
		put(t, tree, "bin/.keep", "", 0o600)
		put(t, top, "other/.keep", "", 0o600)
		put(t, top, "bin/.keep", "", 0o600)
		for link, to := range map[string]string{
			"tree/link": tree, "outside-link": tree, "outside-tool": tool, "a=tool": tool, "frob": "/bin/sh", "perl5.36-x86_64-linux-gnu": "/bin/true", "bash-static": "/bin/true", "bin/indirect": "../tree/tool",
		} {
			if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
				t.Fatal(err)
			}
		}
		from := strings.NewReplacer("%t", tree, "%u", top, "%r", strings.TrimPrefix(tree, "/")).Replace(form)
		path := put(t, tree, "p.toml", secretFrom(from), 0o600)
		was, _ := of(t, path)
		// Rules are edited without a question, whatever the command is.
		put(t, tree, "p.toml", strings.Replace(secretFrom(from), "\"b.example\"", "\"c.example\"", 1), 0o600)
		if is, _ := of(t, path); len(is.Beyond(was)) > 0 {
			t.Errorf("%s: a rule that was edited asks for %q", form, is.Beyond(was))
		}
		put(t, tree, "tool", "#!/bin/sh\necho two\n", 0o700)
		if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
			t.Errorf("%s: the program changed and nothing is asked: %q", form, is)
		}
	}
}

// A script's interpreter is what Linux makes of the first line: 255 bytes of it, each word up to a NUL.
func TestI15_InterpretersInTheTreeAsk(t *testing.T) {
	t.Parallel()
	top := realDir(t)
	tree := filepath.Join(top, "tree")
	tool := filepath.Join(top, "outside-tool")
	put(t, tree, "tool", "#!/bin/sh\necho one\n", 0o700)
	if err := os.Symlink("tree/tool", tool); err != nil {
		t.Fatal(err)
	}
	long := func(interpreter string, size int) string {
		return interpreter + strings.Repeat(" ", size-len(interpreter)-len("/bin/true")) + "/bin/true"
	}
	for _, c := range []struct {
		name, line string
		asks       bool
	}{
		{"an interpreter elsewhere", "#!/bin/sh", false},
		{"in a line as long as it may be", long("#!/bin/sh", 255), false},
		{"a line that is cut", long("#!/bin/sh", 256), true},
		{"a link into the tree", "#!" + tool, true},
		{"one whose name goes on behind a NUL", "#!" + tool + "\x00x", true},
		{"the script of a shell", "#!/bin/sh " + tool, true},
	} {
		put(t, tree, "tool", "#!/bin/sh\necho one\n", 0o700)
		put(t, tree, "login", c.line+"\necho two\n", 0o700)
		path := put(t, tree, "p.toml", secretFrom(`"command:./login"`), 0o600)
		was, _ := of(t, path)
		put(t, tree, "tool", "#!/bin/sh\necho other\n", 0o700)
		if is, _ := of(t, path); len(is.Beyond(was)) > 0 != c.asks {
			t.Errorf("%s: another file of the tree changed, and asked for is %q of %q", c.name, is.Beyond(was), is)
		}
	}
}

// Whatever the command may run counts: modes too, what is beside the file that a linked policy is, and what is around it
// in the repository. msb's own state doesn't, wherever it lies.
func TestI15_RunnableFilesCountAsContent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, top string)
		asks   bool
	}{
		"a file":                 {func(t *testing.T, top string) { put(t, top, "repo/sub/tool", "two", 0o600) }, true},
		"its mode":               {func(t *testing.T, top string) { put(t, top, "repo/sub/tool", "one", 0o700) }, true},
		"beside the link":        {func(t *testing.T, top string) { put(t, top, "linked/tool", "two", 0o600) }, true},
		"around in a repository": {func(t *testing.T, top string) { put(t, top, "repo/tool", "two", 0o600) }, true},
		"where a link leads": {func(t *testing.T, top string) {
			link := filepath.Join(top, "repo/sub/link")
			if err := errors.Join(os.Remove(link), os.Symlink("../tool", link)); err != nil {
				t.Fatal(err)
			}
		}, true},
		"elsewhere":   {func(t *testing.T, top string) { put(t, top, "tool", "two", 0o600) }, false},
		"msb's state": {func(t *testing.T, top string) { put(t, top, "repo/sub/state/log", "two", 0o600) }, false},
	} {
		top := realDir(t)
		for _, file := range []string{"repo/sub/tool", "repo/tool", "linked/tool", "tool", "repo/sub/state/log"} {
			put(t, top, file, "one", 0o600)
		}
		put(t, top, "repo/sub/p.toml", secretFrom(`["command:sh", "-c", "./tool"]`), 0o600)
		for link, to := range map[string]string{"repo/.git": "nowhere", "repo/sub/link": "tool", "linked/p.toml": "../repo/sub/p.toml"} {
			if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
				t.Fatal(err)
			}
		}
		load := func() grants.Set {
			p, err := policies.Load(filepath.Join(top, "linked/p.toml"))
			if err != nil {
				t.Fatal(err)
			}
			set, _, err := grants.Of(p, grants.Options{State: filepath.Join(top, "repo/sub/state")})
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
		was := load()
		c.change(t, top)
		if more := load().Beyond(was); len(more) > 0 != c.asks {
			t.Errorf("%s changed, and asked for is %q", name, more)
		}
	}
}

// What was approved is what runs: a command is refused once its files are others, and only then.
func TestI15_ACommandRunsWhatWasApproved(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	put(t, dir, "tool", "one", 0o600)
	_, p := of(t, put(t, dir, "p.toml", secretFrom(`["command:sh", "-c", "./tool"]`), 0o600))
	hold := p.Secrets[0].From.Hold
	if err := grants.Check(hold); err != nil || hold.Content == "" {
		t.Errorf("nothing changed: %v, %+v", err, hold)
	}
	put(t, dir, "tool", "two", 0o600)
	if err := grants.Check(hold); err == nil {
		t.Error("its file changed, and it runs")
	}
}

// A file in a tree is held to its real path, whichever side of a link the tree is on; one elsewhere is not.
func TestI15_LinkedFilesAreHeld(t *testing.T) {
	t.Parallel()
	top := realDir(t)
	inside, outside := put(t, top, "tree/token", "x", 0o600), put(t, top, "token", "x", 0o600)
	for link, to := range map[string]string{"tree/out": outside, "in": inside, "rotated": outside} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{"tree/token": inside, "tree/out": outside, "in": inside, "token": "", "rotated": ""} {
		_, p := of(t, put(t, top, "tree/p.toml", secretFrom(`"file:`+filepath.Join(top, file)+`"`), 0o600))
		got := ""
		if hold := p.Secrets[0].From.Hold; hold != nil {
			got = hold.Path
		}
		if got != want {
			t.Errorf("%s is held to %q, want %q", file, got, want)
		}
	}
}

// Nobody waits for the writer of a pipe.
func TestI11_PipesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	set, p := of(t, put(t, dir, "p.toml", head+"[[tls.extra_ca]]\nfile = \"pipe\"\nhosts = [\"a.example\"]\n", 0o600))
	if p.TLS.ExtraCA[0].PEM != nil || !strings.Contains(set.String(), "can't be read") {
		t.Errorf("a pipe is held as roots: %s", set)
	}
	of(t, put(t, dir, "p.toml", secretFrom(`"command:sh ./pipe"`), 0o600))
	of(t, put(t, dir, "p.toml", secretFrom(`"command:./pipe"`), 0o600))
}

// The directory of a tree may have a name that would end a word.
func TestI15_OddTreeNamesAreRecognised(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a=b", "a:b", "a,b", "a b", "a (b)", "a#b"} {
		tree := filepath.Join(realDir(t), name, "tree")
		tool := put(t, tree, "tool", "one\n", 0o700)
		path := put(t, tree, "p.toml", secretFrom(`["command:cat", "`+tool+`"]`), 0o600)
		was, _ := of(t, path)
		put(t, tree, "tool", "two\n", 0o700)
		if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
			t.Errorf("%s: what the command reads changed, and nothing is asked", name)
		}
		variables := []string{"A=b", "BASH_ENV=" + tool}
		if !strings.Contains(name, ":") { // no list can hold it
			variables = append(variables, "PYTHONPATH=/usr/lib:"+tool)
		}
		if got := grants.Environ(variables, []string{tree}); len(got) != 1 || got[0] != "A=b" {
			t.Errorf("%s: the command gets the variables %q", name, got)
		}
	}
}

// A program in the tree is run by the path that was approved: a link of the writer's may lead elsewhere afterwards.
func TestI15_LinkedProgramsAreHeldByPath(t *testing.T) {
	t.Parallel()
	tree := realDir(t)
	script := put(t, tree, "script", "#!/bin/sh\necho one\n", 0o700)
	if err := os.Symlink("script", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	_, held := of(t, put(t, tree, "p.toml", secretFrom("\"command:"+filepath.Join(tree, "link")+"\""), 0o600))
	if hold := held.Secrets[0].From.Hold; hold == nil || hold.Path != script {
		t.Errorf("held by %+v, want the path %s", hold, script)
	}
}

// A program elsewhere with plain arguments has nothing to do with the files beside the policy.
func TestPlainCommandsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	for _, from := range []string{`"command:printf demo-%s value"`, `["command:cat", "/proc/sys/kernel/random/uuid"]`, `["command:printf", "work/login token"]`, `"command:no-such-program op://vault/item"`} {
		dir := realDir(t)
		path := put(t, dir, "p.toml", secretFrom(from), 0o600)
		was, _ := of(t, path)
		put(t, dir, "tool", "#!/bin/sh\n", 0o700)
		if is, _ := of(t, path); len(is.Beyond(was)) > 0 {
			t.Errorf("%s: %q", from, is.Beyond(was))
		}
	}
}

// A policy may be the script that a secret's command runs: any change but a plain rule counts as a changed program.
func TestI15_ScriptsInPoliciesNeedApproval(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"# exec /bin/evil\n",
		"[limits]\negress_rate = \"1M/s\"\n",
		"[[egress.deny]]\nname = \"x; exec evil\"\nhosts = [\"c.example\"]\n",
		"[[egress.deny]]\nname = \"$(evil)\"\nhosts = [\"c.example\"]\n",
		"[[egress.deny]]\nhosts = [\"c.example\"] # evil\n",
		"[[egress.deny]]\nwhy = '''exec evil'''\nhosts = [\"c.example\"]\n",
	} {
		dir := realDir(t)
		text := secretFrom(`"command:sh p.toml"`)
		path := put(t, dir, "p.toml", text, 0o600)
		was, _ := of(t, path)
		put(t, dir, "p.toml", text+line, 0o600)
		if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
			t.Errorf("%q was added, and nothing is asked", line)
		}
	}
}

// The tree is the outermost repository: a .git that somebody puts below makes it no smaller.
func TestI15_PlantedRepositoriesShrinkNoTree(t *testing.T) {
	t.Parallel()
	top := realDir(t)
	put(t, top, ".git/HEAD", "", 0o600)
	tool := put(t, top, "bin/tool", "#!/bin/sh\necho one\n", 0o700)
	path := put(t, top, "sub/p.toml", secretFrom(`"command:`+tool+`"`), 0o600)
	put(t, top, "sub/.git", "gitdir: elsewhere", 0o600)
	was, _ := of(t, path)
	put(t, top, "bin/tool", "#!/bin/sh\necho two\n", 0o700)
	if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
		t.Error("a program of the repository changed, and nothing is asked")
	}
	// Without the outer .git the program is no part of the tree, which is another grant.
	if err := os.RemoveAll(filepath.Join(top, ".git")); err != nil {
		t.Fatal(err)
	}
	if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
		t.Error("the repository is gone, and nothing is asked")
	}
}

// What a link leads to is what is approved, for files, images, includes and programs.
func TestI15_LinkTargetsAreApproved(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		secretFrom("\"file:link\""),
		secretFrom("\"file:dir/x.toml\""),
		secretFrom("\"command:./link\""),
		head + "[sandbox]\nimage = \"dir:%t/dir\"\n",
		head + "include = [\"link.toml\"]\n",
		head + "[[tls.extra_ca]]\nfile = \"link\"\nhosts = [\"a.example\"]\n",
	} {
		top := realDir(t)
		tree := filepath.Join(top, "tree")
		path := put(t, tree, "p.toml", strings.ReplaceAll(text, "%t", tree), 0o600)
		for _, to := range []string{"one", "two"} {
			put(t, top, to+"/x.toml", head+"# "+to+"\n", 0o700)
		}
		point := func(to string) {
			for link, target := range map[string]string{"link": "/x.toml", "link.toml": "/x.toml", "dir": ""} {
				_ = os.Remove(filepath.Join(tree, link))
				if err := os.Symlink(filepath.Join(top, to)+target, filepath.Join(tree, link)); err != nil {
					t.Fatal(err)
				}
			}
		}
		point("one")
		was, _ := of(t, path)
		if again, _ := of(t, path); len(again.Beyond(was)) > 0 {
			t.Errorf("%q: nothing changed, and it asks", text)
		}
		point("two")
		if is, _ := of(t, path); len(is.Beyond(was)) == 0 {
			t.Errorf("%q: the link leads elsewhere, and nothing is asked", text)
		}
	}
}

func TestI15_GrantsAreShownAsText(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	text := secretFrom(`["command:printf", "a\u001b[2Jb\u202ec\u200bd", "x\ny"]`) + "[sandbox]\nimage = \"dir:/\\u001b]0;x\\u0007\"\n"
	set, _ := of(t, put(t, dir, "p.toml", text, 0o600))
	if s := set.String(); strings.ContainsAny(s, "\x1b\x07\u202e\u200b") || strings.Count(s, "\n") != len(set.Lines())-1 {
		t.Errorf("control characters are shown as they are: %q", s)
	}
}

// A tree with too much in it is no reason to look at a part of it.
func TestI11_ContentIsBounded(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	path := put(t, dir, "p.toml", secretFrom(`["command:sh", "-c", "./x"]`), 0o600)
	f, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(300 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "zz", "after", 0o600)
	if _, _, err := grants.Of(p, grants.Options{}); err == nil || !strings.Contains(err.Error(), "directory of its own") {
		t.Errorf("%v", err)
	}
}

// TestI15_AgentsDirectoriesAreGrants: what [agent] takes from this machine is asked for, and writing is more than reading.
func TestI15_AgentsDirectoriesAreGrants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	of := func(agent string) grants.Set {
		p, err := policies.Parse("p.toml", []byte("version = 1\n"+agent), nil)
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := grants.Of(p, grants.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	read, write := of("[agent]\ndirectories = [\""+dir+":/work\"]\n"), of("[agent]\ndirectories = [\""+dir+":/work:rw\"]\n")
	if len(of("[agent]\nsandboxes = 1\n")) != 0 || len(read) != 1 || len(write) != 1 || len(write.Beyond(read)) != 1 || len(read.Beyond(write)) != 1 {
		t.Errorf("read: %s; write: %s", read, write)
	}
	if set := of("[agent]\nimages = [\"dir:" + dir + "\", \"python:3.12\"]\n"); len(set.Beyond(nil)) != 1 || len(set) != 2 {
		t.Errorf("images: %s", set)
	}
}
