package capture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHeadlessCapturesGetTheirHead: a rotation onto a full disk can't write the head of the new
// file. What is written once there is room again must not stand in a file that nobody can read.
func TestHeadlessCapturesGetTheirHead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	o := Options{}.withDefaults()
	r := newRotating(path, &o)
	block := packetBlock(nil, 1, FromGuest, [][]byte{frame(1, 60)}, 60, "", 0)
	none := func() []byte { return nil }
	if err := r.write(block, none, true); err == nil {
		t.Fatal("a full disk took it")
	}
	if err := os.Remove(path); err != nil { // room again
		t.Fatal(err)
	}
	if err := r.write(block, none, true); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(t, b)
	if err != nil || len(all) != 1 || !bytes.Equal(all[0].Frame, frame(1, 60)) {
		t.Errorf("got %+v, %v; want the packet", all, err)
	}
}

// TestEmptyPartsPushNoneOut: turning a capture on again and again while the disk is full must not cost
// the parts from before.
func TestEmptyPartsPushNoneOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	if err := os.WriteFile(path+".1", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * DefaultKeep {
		if err := os.WriteFile(path, nil, 0o600); err != nil { // as an attempt on a full disk leaves it
			t.Fatal(err)
		}
		w, err := Create(path, Options{Resume: true})
		if err != nil {
			t.Fatal(i, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(i, err)
		}
	}
	if b, err := os.ReadFile(path + ".1"); err != nil || string(b) != "kept" {
		t.Errorf("path.1 holds %q, %v", b, err)
	}
}

// TestCapturesRefusePipes: it would wait for a reader, and can't be rotated.
func TestCapturesRefusePipes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{}); err == nil || !strings.Contains(fmt.Sprint(err), "no regular file") {
		t.Errorf("Create: %v", err)
	}
}
