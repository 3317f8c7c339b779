//go:build vmtest

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// size of a file; 0 if there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestVMTheCaptureIsSwitchedWhileRunning: SIGUSR1 and SIGUSR2 to msb turn it on and off; each part is a capture.
func TestVMTheCaptureIsSwitchedWhileRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	r := background(t, "--pcap", path, "--pcap-off", "--", "sh", "-c",
		`i=0; while :; do nslookup n$i.example >/dev/null; i=$((i+1)); echo asked; done`)
	r.out.await(t, "asked")
	if n := size(path); n > 1000 {
		t.Errorf("%d bytes were captured before it was turned on", n)
	}
	for round := range 2 {
		before := size(path)
		r.signal(t, syscall.SIGUSR1)
		eventually(t, "frames in the capture", func() bool { return size(path) > 2000 && (round == 0 || size(path+".1") == before) })
		r.signal(t, syscall.SIGUSR2)
		eventually(t, "the capture's end", func() bool { return complete(t, path) })
	}
	if n := strings.Count(r.err.String(), "the capture is on"); n != 2 {
		t.Errorf("it says so %d times: %s", n, r.err.String())
	}
	r.signal(t, syscall.SIGINT)
	r.signal(t, syscall.SIGINT)
	r.wait(t)
	policy := write(t, "policy.toml", "version = 1\n")
	got := msb(t, nil, "review", "--policy", policy, path, path+".1")
	if got.code != 0 || !strings.Contains(got.out, ".example") {
		t.Errorf("exit %d; the two parts: %s%s", got.code, got.out, got.err)
	}
}

// complete reports whether a review finds a capture whole with its statistics, which close it.
func complete(t *testing.T, path string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const statistics = 5 // the block's type
	return len(b) > 200 && strings.Contains(string(b[len(b)-200:]), string([]byte{statistics, 0, 0, 0}))
}

// TestI12_VMUnwritableCapturesAreReported: the command's work is done all the same.
func TestI12_VMUnwritableCapturesAreReported(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatalf("a small disk (needs root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	got := vmRun(t, "--pcap", filepath.Join(dir, "x.pcapng"), "--", "sh", "-c", "for i in $(seq 200); do nslookup n$i.example >/dev/null; done; echo done")
	got.want(t, exitNoSpace, "done\n")
	got.says(t, exitNoSpace, "the capture can't be written", "no space left")
}
