package runner

import (
	"debug/elf"
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
		cmd := exec.Command(program)
		cmd.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
		out, err := cmd.Output()
		if err != nil {
			continue // a static program
		}
		granted := Libraries(program)
		for _, m := range regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+) \(`).FindAllStringSubmatch(string(out), -1) {
			tried++
			real, err := filepath.EvalSymlinks(m[1])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(granted, real) {
				t.Errorf("%s loads %s, which is not among %q", name, real, granted)
			}
			// The links by which the linker gets there.
			for link := firstLink(m[1]); link != "" && !slices.Contains(granted, link); link = "" {
				t.Errorf("%s loads %s by the link %s, which is not there", name, m[1], link)
			}
		}
		for _, path := range granted {
			if info, err := os.Lstat(path); err != nil || info.IsDir() {
				t.Errorf("%s is granted %s: a directory, or nothing (%v)", name, path, err)
			}
		}
	}
	if tried == 0 {
		t.Error("no program of this machine is linked dynamically")
	}
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
