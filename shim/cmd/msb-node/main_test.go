package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envRun makes this program msb-node.
const envRun = "MSB_TEST_AS_NODE"

const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(envRun) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lab has a node's files in a directory, which is named by flags: the node's root directory is this machine's.
type lab struct {
	*testing.T
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("entering a root directory needs root")
	}
	l := &lab{t, t.TempDir()}
	for name, text := range map[string]string{
		"parts/bin/containerd-shim-msb-v1": "shim", "parts/lib/msb/libkrun.so.1": "krun", "config/floor.toml": "version = 1\n", "etc/config.toml": "version = 3\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(l.at(name)), 0o700), os.WriteFile(l.at(name), []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lab) at(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) command(args ...string) *exec.Cmd {
	flags := []string{
		"--host=/", "--parts=" + l.at("parts"), "--config=" + l.at("config"), "--prefix=" + l.at("opt"), "--containerd-config=" + l.at("etc/config.toml"),
		"--drop-in=" + l.at("etc/conf.d/msb.toml"), "--restart=mkdir -p " + l.at("restarted"),
	}
	cmd := exec.CommandContext(l.Context(), os.Args[0], append(flags, args...)...)
	cmd.Env = append(os.Environ(), envRun+"=1")
	return cmd
}

func (l *lab) has(name string) bool {
	_, err := os.Lstat(l.at(name))
	return err == nil
}

// installed are what an installation makes, and whether all of it, or nothing, is there.
func (l *lab) installed(want bool) {
	l.Helper()
	for _, name := range []string{"opt/bin/containerd-shim-msb-v1", "opt/lib/msb/libkrun.so.1", "opt/etc/floor.toml", "opt/etc/shim.toml", "etc/conf.d/msb.toml"} {
		if l.has(name) != want {
			l.Errorf("%s is there: %v", name, !want)
		}
	}
}

// TestEachCommand does what its name says, and exits with 1 and the reason where it can't.
func TestEachCommand(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	step := func(want string, args ...string) {
		t.Helper()
		out, err := l.command(args...).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s, want %q", args, err, out, want)
		}
	}
	step("no such file", "check")
	step("", "install")
	if l.installed(true); !l.has("restarted") {
		t.Error("containerd was not restarted")
	}
	step("", "check")
	if err := os.WriteFile(l.at("opt/bin/containerd-shim-msb-v1"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("another version's", "check")
	step("", "install")
	step("", "check")
	if err := os.RemoveAll(l.at("restarted")); err != nil {
		t.Fatal(err)
	}
	step("", "uninstall")
	if l.installed(false); !l.has("restarted") {
		t.Error("containerd was not restarted")
	}
	step("is no command", "remove")
	step("name one of")
	step("name one of", "install", "check")
	step("--restart is empty", "--restart= ", "install")
	step("entering the node's root directory", "--host=/not/there", "install")
	step("no such file", "--parts=/not/there", "install")
	if err := os.RemoveAll(l.at("config")); err != nil { // the operator has no files
		t.Fatal(err)
	}
	step("", "install")
	if l.has("opt/etc/floor.toml") {
		t.Error("a floor that nobody wrote")
	}
	if out, err := l.command("--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "usage: msb-node") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestRunUninstallsAtItsEnd: each signal by which a pod is ended takes away what run finds installed, and restarts containerd.
func TestRunUninstallsAtItsEnd(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		l := newLab(t)
		if out, err := l.command("install").CombinedOutput(); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		if err := os.Remove(l.at("restarted")); err != nil {
			t.Fatal(err)
		}
		cmd := l.command("run")
		cmd.Cancel = func() error { return cmd.Process.Kill() }
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = w
		if err := errors.Join(cmd.Start(), w.Close()); err != nil {
			t.Fatal(err)
		}
		limit := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewReader(r)
		said := func(what string) {
			t.Helper()
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("waiting for %q: %v", what, err)
				}
				if strings.Contains(line, what) {
					return
				}
			}
		}
		said("knows the runtime msb already")
		l.installed(true)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		said(fmt.Sprintf("removing msb's files from %s", l.at("opt")))
		_, _ = io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
		limit.Stop()
		if l.installed(false); !l.has("restarted") {
			t.Error("containerd was not restarted")
		}
	}
}
