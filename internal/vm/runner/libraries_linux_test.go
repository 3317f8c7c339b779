package runner

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestLibrariesAreWhatTheLinkerLoads asks the dynamic linker itself.
func TestLibrariesAreWhatTheLinkerLoads(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, name := range []string{"bash", "git", "python3", "gcc", "ls", "qemu-system-x86_64"} {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if file, err := elf.Open(program); err != nil || file.Close() != nil {
			continue // a script
		}
		tried += len(checkLibraries(t, program))
	}
	if tried == 0 {
		t.Error("no program of this machine is linked dynamically")
	}
}

// TestLibrariesAreFoundByRunPaths has a program whose library is a link, and needs another beside the link.
func TestLibrariesAreFoundByRunPaths(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compile := func(out string, args ...string) {
		if text, err := exec.Command(compiler, append([]string{"-o", filepath.Join(dir, out)}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, text)
		}
	}
	two := write("src/two.c", "int two(void) { return 2; }\n")
	one := write("src/one.c", "int two(void);\nint one(void) { return two(); }\n")
	main := write("src/main.c", "int one(void);\nint main(void) { return one(); }\n")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "lib"), 0o700), os.MkdirAll(filepath.Join(dir, "store"), 0o700),
		os.MkdirAll(filepath.Join(dir, "bin"), 0o700), os.Symlink("lib", filepath.Join(dir, "lib64")),
		os.Symlink("../store/one", filepath.Join(dir, "lib", "libone.so")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	compile("lib/libtwo.so", "-shared", "-fPIC", "-Wl,-soname,libtwo.so", two)
	compile("store/one", "-shared", "-fPIC", "-Wl,--no-as-needed,-rpath,$ORIGIN", one, filepath.Join(dir, "lib", "libtwo.so"), "-Wl,-soname,libone.so")
	compile("bin/program", "-Wl,-rpath,$ORIGIN/../lib64", main, "-L"+filepath.Join(dir, "lib"), "-lone", "-Wl,--allow-shlib-undefined")
	loaded := checkLibraries(t, filepath.Join(dir, "bin", "program"))
	for _, want := range []string{"store/one", "lib/libtwo.so"} {
		if !slices.Contains(loaded, filepath.Join(dir, want)) {
			t.Errorf("the linker loads %q, not %s: this shows nothing", loaded, want)
		}
	}
}

// checkLibraries compares what a program is granted to what the dynamic linker loads for it, which it returns.
func checkLibraries(t *testing.T, program string) []string {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
	out, err := cmd.Output()
	if err != nil {
		return nil // a static program
	}
	granted := Libraries(program)
	var loaded []string
	for _, m := range regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+) \(`).FindAllStringSubmatch(string(out), -1) {
		path, err := filepath.EvalSymlinks(m[1])
		if err != nil {
			t.Fatal(err)
		}
		loaded = append(loaded, path)
		if !slices.Contains(granted, path) {
			t.Errorf("%s loads %s, which is not among %q", program, path, granted)
		}
		// The links by which the linker gets there.
		f := finder{links: map[string]string{}}
		_, links := f.resolve(filepath.Clean(m[1]))
		for _, link := range links {
			if !slices.Contains(granted, link) {
				t.Errorf("%s loads %s by the link %s, which is not there", program, m[1], link)
			}
		}
	}
	for _, path := range granted {
		if info, err := os.Lstat(path); err != nil || info.IsDir() {
			t.Errorf("%s is granted %s: a directory, or nothing (%v)", program, path, err)
		}
	}
	return loaded
}

func TestStaticProgramsNeedNoLibrary(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Libraries(script, filepath.Join(t.TempDir(), "missing")); len(got) != 0 {
		t.Errorf("a script and a missing file need %q", got)
	}
}

// TestI8_NoLinkGrantsADirectory guards against /lib, a link to /usr/lib: a rule of Landlock's about the link
// would be about every file below.
func TestI8_NoLinkGrantsADirectory(t *testing.T) {
	if landlockABI() == 0 {
		t.Skip("this kernel has no Landlock")
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "inside", "secret")
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	for _, err := range []error{os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink("inside", link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, _ := observeWith(t, func(l *Launch, args []string) {
		l.Plan.ReadOnly = append(l.Plan.ReadOnly, link)
		args[0] = secret
	})
	if f.ReadSecret == "" {
		t.Error("a link to a directory opened what is in it")
	}
}
