//go:build vmtest

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestI12_VMSamplesOfTheExitCodesDocs runs what docs/exit-codes.md shows, as a person does who copies it.
func TestI12_VMSamplesOfTheExitCodesDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "msb")); err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	samples := 0
	for _, block := range blocks {
		for _, sample := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(sample, "\n")
			samples++
			t.Run(line, func(t *testing.T) {
				sh := exec.CommandContext(t.Context(), "sh", "-c", "{ "+line+"\n} 2>&1")
				sh.Dir = t.TempDir()
				sh.Env = append(os.Environ(), asMSB+"=1", sandbox.EnvHome+"="+stateDirectory(), "PATH="+bin+":"+os.Getenv("PATH"))
				got := vmCommand(t, sh)
				if strings.TrimRight(got.out, "\n") != strings.TrimRight(want, "\n") {
					t.Errorf("it prints\n%s\nand the docs say\n%s", got.out, want)
				}
			})
		}
	}
	if samples < 4 {
		t.Errorf("%d samples, want at least 4", samples)
	}
}

func TestVMFullRootsHaveRemedies(t *testing.T) {
	const fill = "dd if=/dev/zero of=/f bs=64k"
	got := vmRun(t, "--memory", "160M", "--", "sh", "-c", fill)
	got.says(t, 1, "No space left on device", "--disk 10G", "-m gives")
	got = vmRun(t, "--disk", "16M", "--", "sh", "-c", fill)
	got.says(t, 1, "No space left on device", "make the sandbox with a larger one")
	for name, line := range map[string]string{"with room": "exit 1", "that succeeds": fill + "; true"} {
		if got := vmRun(t, "--memory", "160M", "--", "sh", "-c", line); strings.Contains(got.err, "--disk") {
			t.Errorf("a command %s: it said %q", name, got.err)
		}
	}
	if got := vmRun(t, "-q", "--memory", "160M", "--", "sh", "-c", fill); got.code != 1 || strings.Contains(got.err, "--disk") {
		t.Errorf("-q: exit %d, said %q", got.code, got.err)
	}
}

func TestVMKilledChildrenDontFailCommands(t *testing.T) {
	got := vmRun(t, "--memory", "192M", "--", "sh", "-c", "tail /dev/zero; echo child ended with $?")
	got.want(t, 0, "child ended with 137\n")
	got.says(t, 0, "ran out of memory")
	vmRun(t, "-q", "--memory", "192M", "--", "sh", "-c", "tail /dev/zero; exit 3").says(t, exitGuestMemory, "--memory")
}

func TestVMExecInMissingDirectories(t *testing.T) {
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	defer func() { _ = command(t, home, "rm", "--force", "web").Run() }()
	msb("run", "--vm", "qemu", "-q", "-d", "--name", "web").want(t, 0, "web\n")
	msb("exec", "-w", "/nosuch/dir", "web", "pwd").says(t, 127, "msb: working directory /nosuch/dir: no such directory")
	msb("exec", "web", "sh", "-c", "ls -d /nosuch 2>/dev/null; true").want(t, 0, "")
	msb("exec", "-w", "/etc/passwd", "web", "pwd").says(t, 126, "not a directory")
	msb("exec", "-w", "/etc", "web", "pwd").want(t, 0, "/etc\n")
	msb("exec", "web", "pwd").want(t, 0, "/root\n")

	// A server in the background writes on when the exec that started it has ended.
	msb("exec", "web", "sh", "-c", "(while [ ! -e /tmp/go ]; do sleep 0.1; done; head -c 300000 /dev/zero; echo $? > /tmp/t; mv /tmp/t /tmp/code) & echo started").want(t, 0, "started\n")
	msb("exec", "web", "sh", "-c", "touch /tmp/go; while [ ! -e /tmp/code ]; do sleep 0.1; done; cat /tmp/code").want(t, 0, "0\n")
}

func TestVMRunWithAnotherEntrypoint(t *testing.T) {
	vmRun(t, "-q", "--entrypoint", "/bin/echo", "--", "an", "argument").want(t, 0, "an argument\n")
	vmRun(t, "-q", "--entrypoint", "", "--", "/bin/echo", "alone").want(t, 0, "alone\n")
}
