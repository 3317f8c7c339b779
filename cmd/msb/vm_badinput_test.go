//go:build vmtest

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/msb-project/msb/internal/cachefile"
)

func TestI12_VMImagesThatCantBeUsed(t *testing.T) {
	host := serveRegistry(t)
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	foreign := push(t, host, "foreign", other, v1.Config{}, tarOf(t, map[string]string{"bin/sh": "x"}))
	hostile := push(t, host, "hostile", runtime.GOARCH, v1.Config{}, tarOf(t, map[string]string{"../../etc/passwd": "root::0:0"}))
	for _, tt := range []struct {
		name, ref string
		code      int
		say       []string
	}{
		{"of another architecture", foreign, exitImagePlatform, []string{"linux/" + other, "linux/" + runtime.GOARCH}},
		{"unknown", host + "/nosuch:v1", exitImageUnknown, []string{host + "/nosuch:v1"}},
		{"hostile", hostile, exitImageRefused, []string{"../../etc/passwd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := vmRun(t, tt.ref, "true")
			got.want(t, tt.code, "")
			got.says(t, tt.code, tt.say...)
		})
	}
}

func TestI12_VMGuestsThatEnd(t *testing.T) {
	// A guest may make its kernel panic when it has no memory left; that is told apart from a process
	// that is killed for it.
	const panicOnOOM = "echo 2 > /proc/sys/vm/panic_on_oom; echo 1 > /proc/sys/vm/overcommit_memory; exec tail /dev/zero"
	for _, tt := range []struct {
		name, line string
		code       int
		say        string
	}{
		{"out of memory", "exec tail /dev/zero", exitGuestMemory, "--memory"},
		{"out of memory with a panic", panicOnOOM, exitGuestMemory, "memory"},
		{"its agent crashes", "kill -SEGV 1; sleep 20", exitAgent, "SIGSEGV"},
		{"it leaves", "reboot -f; sleep 20", exitAgent, "left its machine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := vmRun(t, "--memory", "192M", "--", "sh", "-c", tt.line)
			got.want(t, tt.code, "")
			got.says(t, tt.code, tt.say)
		})
	}
}

func TestI12_VMAgentThatNeverSaysReady(t *testing.T) {
	dir, env := otherHome(t)
	vmCommand(t, command(t, env, runArgs([]string{"--", "true"})...)).want(t, 0, "")
	disks, err := filepath.Glob(filepath.Join(dir, "guest", "*.ext4"))
	if err != nil || len(disks) != 1 {
		t.Fatalf("the agent's disk: %v, %v", disks, err)
	}
	// With its sum, or it would be replaced.
	bad := make([]byte, 1<<20)
	err = errors.Join(os.Chmod(disks[0], 0o600), os.WriteFile(disks[0], bad, 0o600), os.Chmod(disks[0], 0o400),
		os.WriteFile(disks[0]+cachefile.SumSuffix, fmt.Appendf(nil, "%x \n", sha256.Sum256(bad)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	got := vmCommand(t, command(t, env, runArgs([]string{"--", "true"})...))
	got.says(t, exitGuestPanic, "Kernel panic", "root")
	nothingLeft(t, dir)
}

// TestI12_VMNoSpace has a state directory that is full, in a mount namespace of its own, which needs root.
func TestI12_VMNoSpace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, size string }{
		{"for the image", "6m"},
		{"for the kernel", "20m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, env := otherHome(t)
			got := vmCommand(t, inNamespace(t, env, `mkdir -p "$MSB_HOME" && mount -t tmpfs -o mode=0700,size=`+tt.size+` none "$MSB_HOME" || exit 1
				"$@"; code=$?
				cd "$MSB_HOME" && find . -mindepth 2 -type f ! -name '*.lock' ! -name lock
				exit $code`, append([]string{self}, runArgs([]string{"--", "true"})...)...))
			got.says(t, exitNoSpace, "space", dir)
			for f := range strings.Lines(got.out) {
				if !strings.HasPrefix(f, "./images/disks/") && !strings.HasPrefix(f, "./images/refs/") && !strings.HasPrefix(f, "./guest/agentd-") && !strings.HasPrefix(f, "./kernel/qemu-") {
					t.Errorf("left on the full disk: %s", f)
				}
			}
		})
	}
}

// TestI12_VMFullHostDisksReachTheGuest, and not a machine that stands still.
func TestI12_VMFullHostDisksReachTheGuest(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, env := otherHome(t)
	got := vmCommand(t, inNamespace(t, env, `mkdir -p "$MSB_HOME" && mount -t tmpfs -o mode=0700,size=90m none "$MSB_HOME" || exit 1; exec "$@"`,
		append([]string{self}, runArgs([]string{"-q", "--disk", "256M", "--", "sh", "-c", "dd if=/dev/urandom of=/f bs=1M count=100 conv=fsync; echo ended with $?"})...)...))
	// A block of the file that can't be written is dd's own error; one of the file system's journal ends all writing.
	failed := strings.Contains(got.err, "Input/output error") || strings.Contains(got.err, "Read-only file system")
	if got.code != 0 || !strings.Contains(got.out, "ended with 1") || !failed || !strings.Contains(got.err, "free some space") {
		t.Errorf("%+v, want dd to fail, and to hear why", got)
	}
}
