//go:build vmtest

package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestVMRunExitsAsItsCommand(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		code int
		out  string
		say  string
	}{
		{"its own", []string{"--", "sh", "-c", "echo out; echo err >&2; exit 7"}, 7, "out\n", "err\n"},
		{"none of busybox's", []string{"--", "nosuch"}, 127, "", "nosuch"},
		{"not executable", []string{"--", "/etc/passwd"}, 126, "", "/etc/passwd"},
		{"killed", []string{"--", "sh", "-c", "kill -KILL $$"}, 137, "", ""},
		{"--timeout", []string{"--timeout", "1s", "--", "sleep", "1000"}, exitTimeout, "", "--timeout"},
		{"unknown user", []string{"-u", "nosuch", "--", "true"}, exitOther, "", "nosuch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := vmRun(t, tt.args...)
			got.want(t, tt.code, tt.out)
			got.says(t, tt.code, tt.say)
		})
	}
}

// TestVMWarmMakesWhatRunsStartFrom in a state directory that has nothing.
func TestVMWarmMakesWhatRunsStartFrom(t *testing.T) {
	dir, env := otherHome(t)
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	finish(t, command(t, env, "warm", "--vm", "qemu", "-q")).want(t, 0, "")
	nothingLeft(t, dir)
	saved, err := filepath.Glob(filepath.Join(dir, "kernel", "*"))
	if err != nil || len(saved) == 0 {
		t.Errorf("the kernel's cache has %v, %v", saved, err)
	}
	finish(t, command(t, env, "run", "--vm", "qemu", "-q", "--", "echo", "warm")).want(t, 0, "warm\n")
}

func TestVMRunFlagsAreSeenInside(t *testing.T) {
	t.Setenv("VM_TEST_PASSED_ON", "from outside")
	t.Setenv("VM_TEST_NOT_PASSED", "must not be seen")
	got := vmRun(t, "-q", "-e", "SET=a value = with signs", "-e", "VM_TEST_PASSED_ON", "-e", "VM_TEST_UNSET",
		"-w", "/made/for/this", "-u", "user", "--cpus", "2", "--memory", "300M", "--hostname", "box", "--disk", "1G", "--init", "--ulimit", "nofile=100:200", "--ulimit", "core=0",
		"--", "sh", "-c", `echo "$SET|$VM_TEST_PASSED_ON|${VM_TEST_UNSET-unset}|${VM_TEST_NOT_PASSED-unset}"
			pwd; id -un; id -u; nproc; hostname
			awk '/MemTotal/ { print ($2 > 250000 && $2 <= 300 * 1024) ? "memory" : $2 }' /proc/meminfo
			df / | awk 'NR == 2 { print ($2 > 900000) ? "disk" : $2 }'
			ulimit -Sn; ulimit -Hn; ulimit -c
			sh -c 'sh -c "exit 0" & exec sh -c "exit 0"'; sh -c '(exec sleep 0.1) & exit 0'
			n=0; while grep -qs '^State:.Z' /proc/[0-9]*/status && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done; [ $n -lt 100 ] && echo reaped`)
	got.want(t, 0, "a value = with signs|from outside|unset|unset\n/made/for/this\nuser\n1000\n2\nbox\nmemory\ndisk\n100\n200\n0\nreaped\n")
	if got.err != "" {
		t.Errorf("with -q it said %q", got.err)
	}
}

func TestVMRunUserByNumbers(t *testing.T) {
	vmRun(t, "-u", "1234:5678", "--", "sh", "-c", "id -u; id -g; touch /root/x 2>/dev/null || echo refused").want(t, 0, "1234\n5678\nrefused\n")
}

// TestVMRunReadOnlyRootRefusesWrites, for root too; the twin without the flag is any other run. What is msb's own, and the
// directories that later calls would make, are there all the same.
func TestVMRunReadOnlyRootRefusesWrites(t *testing.T) {
	shared := t.TempDir()
	vmRun(t, "-q", "--read-only", "-v", shared+":/made/for/this:rw", "--tmpfs", "/run", "--tmpfs", "/scratch/deep:size=1m,mode=0751,exec", "--",
		"sh", "-c", `for d in / /tmp /etc /root; do { echo x > $d/x; } 2>/dev/null && echo "$d is writable"; done
			for d in /run /scratch/deep /dev/shm /made/for/this; do echo x > $d/x || echo "$d is not writable"; done
			grep -c . /etc/resolv.conf > /dev/null || echo no resolver
			stat -c %a /run /scratch/deep
			for d in /run /scratch/deep; do printf '#!/bin/sh\nexit 7\n' > $d/b; chmod +x $d/b; $d/b 2>/dev/null; echo $?; done
			head -c 2000000 /dev/zero > /scratch/deep/x 2>/dev/null || echo full`).
		want(t, 0, "755\n751\n126\n7\nfull\n")
	if b, err := os.ReadFile(filepath.Join(shared, "x")); err != nil || string(b) != "x\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestVMRunQuietIsQuiet(t *testing.T) {
	if got := vmRun(t, "-q", "--", "true"); got.out != "" || got.err != "" {
		t.Errorf("printed %q and said %q", got.out, got.err)
	}
	// Why the exit code is not the command's own is said all the same.
	if got := vmRun(t, "-q", "--timeout", "1s", "--", "sleep", "1000"); got.out != "" || !strings.Contains(got.err, "--timeout") {
		t.Errorf("timeout: printed %q and said %q", got.out, got.err)
	}
	if got := vmRun(t, "--", "true"); !strings.Contains(got.err, "qemu") {
		t.Errorf("without -q it does not say which backend it took: %q", got.err)
	}
}

func TestVMRunStdinIsBinaryAndEnds(t *testing.T) {
	data := make([]byte, 3<<20+17)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, nil, runArgs([]string{"-q", "-i", "--", "cat"})...)
	cmd.Stdin = bytes.NewReader(data)
	if got := vmCommand(t, cmd); got.code != 0 || got.out != string(data) {
		t.Errorf("exit %d, %d bytes of %d came back, or others: %s", got.code, len(got.out), len(data), got.err)
	}
}

func TestVMRunLeavesStdinWithoutI(t *testing.T) {
	cmd := command(t, nil, runArgs([]string{"--", "cat"})...)
	cmd.Stdin = strings.NewReader("not asked for")
	vmCommand(t, cmd).want(t, 0, "")
}

func TestVMRunEndsWithOpenStdin(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	cmd := command(t, nil, runArgs([]string{"-i", "--", "sh", "-c", "exit 3"})...)
	cmd.Stdin = r
	vmCommand(t, cmd).want(t, 3, "")
}

func TestVMRunEndsWithUnreadOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := &running{Cmd: command(t, nil, runArgs([]string{"--", "sh", "-c", "echo first; exec cat /dev/zero"})...), ended: make(chan struct{})}
	run.Stdout, run.Stderr = w, &run.err
	run.start(t)
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, len("first\n"))); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if got := run.wait(t); got.code != exitSignalled(syscall.SIGPIPE) || strings.Contains(got.err, "broken pipe") {
		t.Errorf("exit %d and %q, want %d and nothing: whoever reads no more has enough", got.code, got.err, exitSignalled(syscall.SIGPIPE))
	}
	nothingLeft(t, stateDirectory())
}

func TestI2_VMRunNoNetHasNoDevice(t *testing.T) {
	got := vmRun(t, "--no-net", "--policy", "../../policy.toml", "--", "sh", "-c",
		"ls /sys/class/net | grep -v -e lo -e dummy; nc -w 3 192.168.127.1 53 </dev/null && echo reached; nslookup echo.msb.internal 2>&1 | grep 198.18; true")
	got.want(t, 0, "")
}

func TestVMRunKeepsItsFilesWhenAsked(t *testing.T) {
	got := finish(t, command(t, nil, runArgs([]string{"--rm=false", "--disk", "64M", "--", "sh", "-c", "echo kept > /kept"})...))
	kept, err := filepath.Glob(filepath.Join(stateDirectory(), "kept", "*"))
	if err != nil || len(kept) != 1 || got.code != 0 || !strings.Contains(got.err, kept[0]) {
		t.Fatalf("exit %d, kept %v, said %q", got.code, kept, got.err)
	}
	for _, name := range []string{"console.log", "audit.jsonl", "upper.ext4"} {
		if _, err := os.Stat(filepath.Join(kept[0], name)); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(kept[0]); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, stateDirectory())
}

// TestI8_VMLibrariesLogNothing: the environment turns on the log of gRPC, which quotes what goes by.
func TestI8_VMLibrariesLogNothing(t *testing.T) {
	env := []string{"GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99"}
	got := finish(t, command(t, env, runArgs([]string{"--rm=false", "--", "true"})...))
	kept, err := filepath.Glob(filepath.Join(stateDirectory(), "kept", "*"))
	if err != nil || len(kept) != 1 || got.code != 0 || !strings.Contains(got.err, kept[0]) || strings.Contains(got.err, " INFO: ") {
		t.Fatalf("exit %d, kept %v, said %q", got.code, kept, got.err)
	}
	if log, err := os.ReadFile(filepath.Join(kept[0], "supervisor.log")); err != nil || len(log) > 0 {
		t.Errorf("supervisor.log: %q, %v", log, err)
	}
	if err := os.RemoveAll(kept[0]); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, stateDirectory())
}

func TestVMRunFlagsOverrideThePolicy(t *testing.T) {
	got := vmRun(t, "-q", "--policy", "../../policy.toml")
	if got.code != 0 || strings.Contains(got.out, "unexpected") || strings.Count(got.out, "\n") < 6 {
		t.Errorf("the tour: exit %d\n%s%s", got.code, got.out, got.err)
	}
	t.Log("\n" + got.out)
	vmRun(t, "-q", "--policy", "../../policy.toml", "--", "echo", "mine").want(t, 0, "mine\n")
}
