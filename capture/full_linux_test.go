package capture

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate/rotatetest"
)

// TestI12_FullDisksLeaveNoHalfBlock writes a packet of which only a part fits on the disk, in the middle and at the end
// of a capture: both are readable to their end.
func TestI12_FullDisksLeaveNoHalfBlock(t *testing.T) { // not parallel: the bound is the process's
	for _, after := range []int{0, 60} { // nothing, or a packet that is shorter than what the half takes
		path := filepath.Join(t.TempDir(), "a.pcapng")
		o := Options{}.withDefaults()
		r, err := createRotating(path, &o)
		if err != nil {
			t.Fatal(err)
		}
		none := func() []byte { return nil }
		block := func(n, size int) []byte { return packetBlock(nil, 1, FromGuest, [][]byte{frame(n, size)}, size, "", 0) }
		if err := r.write(block(1, 60), none, false); err != nil {
			t.Fatal(err)
		}
		more := rotatetest.FullAt(t, uint64(r.Size)+1000)
		err = r.write(block(2, 1500), none, false)
		more()
		if !errors.Is(err, unix.EFBIG) {
			t.Fatalf("a full disk: %v, want EFBIG", err)
		}
		want := 1
		if after > 0 {
			want = 2
			if err := r.write(block(3, after), none, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := readAll(t, b); err != nil || len(all) != want {
			t.Errorf("a packet of %d bytes behind it: %d packets are read, %v; want %d and the end", after, len(all), err, want)
		}
	}
}

// TestI12_FullDisksLeaveNoHalfWrite is the same past the page cache: what the disk took of it is cut off.
func TestI12_FullDisksLeaveNoHalfWrite(t *testing.T) { // not parallel: the bound is the process's
	path := filepath.Join(t.TempDir(), "a.pcapng")
	o := Options{}.withDefaults()
	r, err := createRotating(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	none := func() []byte { return nil }
	more := rotatetest.FullAt(t, directMin/2)
	err = r.write(directBatch(), none, true)
	more()
	if !errors.Is(err, unix.EFBIG) {
		t.Fatalf("a full disk: %v, want EFBIG", err)
	}
	if err := r.write(packetBlock(nil, 1, FromGuest, [][]byte{frame(3, 60)}, 60, "", 0), none, true); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := readAll(t, b); err != nil || len(all) != 1 {
		t.Errorf("%d packets are read, %v; want the one behind, and the end", len(all), err)
	}
}
