package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/commandfile"
)

// installedArgs are what a script gives msb.
func installedArgs(t *testing.T, script string, args ...string) []string {
	t.Helper()
	b, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fake := write(t, "msb", "#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
	if err := os.Chmod(fake, 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "exec "+self+" ", "exec "+fake+" ", 1)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", text, "cmd"}, args...)...)
	cmd.Env = []string{"IFS=-/"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestInstalledCommandsRunWhatWasGiven(t *testing.T) {
	t.Parallel()
	dir, work := t.TempDir(), t.TempDir()
	policy := filepath.Join(work, "it's a policy.toml")
	if err := os.WriteFile(policy, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given := []string{"--policy=" + policy, "--memory=1G", "--cpus=2", "--env=A=it's $HOME", "--env=B", "--env=OF_THE_CALLER", "--volume=.:/work:rw", "--workdir=/work", "--ulimit=nofile=8:9", "--read-only=true", "--timeout=5m"}
	cmd := command(t, []string{"PATH=" + dir, "B=x"}, slices.Concat([]string{"install", "--dir", dir, "--name", "tool", "--policy", "it's a policy.toml"}, given[1:], []string{"ghcr.io/acme/app:1", "--"}, hostileWords)...)
	cmd.Dir = work
	path := filepath.Join(dir, "tool")
	if got := finish(t, cmd); got.code != 0 || got.out != path+"\n" || got.err != "" {
		t.Fatalf("%+v", got)
	}
	want := slices.Concat([]string{"run", "-i"}, given, []string{"ghcr.io/acme/app:1", "--"}, hostileWords, hostileWords)
	if got := installedArgs(t, path, hostileWords...); !reflect.DeepEqual(got, want) {
		t.Errorf("it runs\n%q, want\n%q", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	got := msb(t, nil, "install", "--dir", dir, "ghcr.io/acme/app:1@sha256:"+strings.Repeat("0", 64)) // the name is the image's
	if got.code != 0 || got.out != filepath.Join(dir, "app")+"\n" || !strings.Contains(got.err, "is not in your PATH") {
		t.Errorf("%+v", got)
	}
}

// TestInstalledCommandsFindTheirFiles from wherever they are called: a floor above all, which bounds what the others allow.
func TestInstalledCommandsFindTheirFiles(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	for name, text := range map[string]string{"policy.toml": "version = 1\n", "env": "A=b\n"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for flag, file := range map[string]string{"policy": "policy.toml", "floor": "policy.toml", "audit": "log", "pcap": "frames", "env-file": "env"} {
		dir := t.TempDir()
		cmd := command(t, []string{"PATH=" + dir}, "install", "--dir", dir, "--name", "tool", "--"+flag, file, "alpine")
		cmd.Dir = work
		if got := finish(t, cmd); got.code != 0 {
			t.Fatalf("--%s: %+v", flag, got)
		}
		if got, want := installedArgs(t, filepath.Join(dir, "tool")), "--"+flag+"="+filepath.Join(work, file); !slices.Contains(got, want) {
			t.Errorf("it runs\n%q, without %s", got, want)
		}
	}
}

// TestI14_InstallTouchesOnlyItsOwnFiles: neither a file, a link nor a directory of somebody else is replaced or removed.
func TestI14_InstallTouchesOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := []string{"PATH=" + dir}
	own := write(t, "own", commandfile.Begin)
	for name, make := range map[string]func(path string) error{
		"script": func(path string) error { return os.WriteFile(path, []byte("#!/bin/sh\necho mine\n"), 0o700) },
		"empty":  func(path string) error { return os.WriteFile(path, nil, 0o700) },
		"link":   func(path string) error { return os.Symlink(own, path) },
		"broken": func(path string) error { return os.Symlink("nowhere", path) },
		"dir":    func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		if got := msb(t, env, "install", "--dir", dir, "--name", name, "alpine"); got.code != exitOther || !strings.Contains(got.err, "did not make it") {
			t.Errorf("install over %s: %+v", name, got)
		}
		if got := msb(t, env, "uninstall", "--dir", dir, name); got.code != exitOther || !strings.Contains(got.err, "left as it is") {
			t.Errorf("uninstall of %s: %+v", name, got)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	for range 2 { // the second replaces the first
		if got := msb(t, env, "install", "--dir", dir, "alpine"); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	if got := msb(t, env, "uninstall", "--dir", dir, "alpine"); got.code != 0 || got.out != "alpine\n" {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "uninstall", "--dir", dir, "alpine"); got.code != exitOther || !strings.Contains(got.err, `no command "alpine" in `+dir) {
		t.Errorf("again: %+v", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestHiddenProgramsAreNamed: msb install of an image whose name is a program's too, as of ruby and python,
// says that scripts get the sandbox from then on.
func TestHiddenProgramsAreNamed(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "ruby"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir + ":" + other: "ruby is no longer " + other, other: "ruby is no longer " + other, other + ":" + dir: other + "/ruby comes first", dir: "",
	} {
		got := msb(t, []string{"PATH=" + path}, "install", "--dir", dir, "ruby")
		if got.code != 0 || !strings.Contains(got.err, want) || want == "" && got.err != "" {
			t.Errorf("%s: %+v, want %q", path, got, want)
		}
	}
}

func TestI12_UnrunnableCommandsAreNotInstalled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for say, args := range map[string][]string{
		"name the image":            {},
		"can't be the name":         {"--name", "../x", "alpine"},
		"such as --name tool":       {"dir:/tmp"},
		"invalid image reference":   {"UPPER/x:::"},
		"policy file can't be read": {"--policy", "nosuch.toml", "alpine"},
		"HOST:PORT":                 {"--allow", "https://x", "alpine"},
		"give --name too":           {"--label", "a=b", "alpine"},
		"from / on":                 {"--secret", "T=file:token@a.example", "alpine"},
		"of the secret's source":    {"--secret", "T=command:./token@a.example", "alpine"},
		"msb policy trust":          {"--trust", "alpine"},
	} {
		if got := msb(t, nil, append([]string{"install", "--dir", dir}, args...)...); got.code == 0 || !strings.Contains(got.err, say) {
			t.Errorf("%q: %+v; want %q", args, got, say)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestHalfWrittenCommandsAreSwept: what a kill left in the middle of msb install goes with the next one; what another writes
// just now, and what has another name, stays. It is the same for a new command and one that is replaced.
