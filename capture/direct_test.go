package capture

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestDirectWritesKeepBusyCapturesComplete: a busy capture goes past the page cache in pieces that are
// padded to the disk's blocks. What was taken is read back in its order, by others too, and a quiet capture
// has no padding at all.
func TestDirectWritesKeepBusyCapturesComplete(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "busy.pcapng")
	w, err := Create(path, Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const packets = 4000
	lost := 0
	for i := range packets {
		n := 60 + i*37%3000
		if i%7 == 0 {
			n = 60000
		}
		for w.Packet(FromGuest, frame(i, n), "") == (Ticket{}) {
			if lost++; lost > 5000 {
				t.Fatal("the disk takes nothing")
			}
			time.Sleep(time.Millisecond) // the queue is full: this test wants order, not speed
		}
		if i == packets/2 {
			time.Sleep(2 * batchTime) // an odd piece in the middle
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != packets {
		t.Errorf("%d packets, want %d", len(all), packets)
	}
	for i, rec := range all {
		if !bytes.Equal(rec.Frame, frame(i, len(rec.Frame))) {
			t.Fatalf("packet %d is another one", i)
		}
	}
	probe := openDirectIn(t)
	padding := bytes.Count(b, padded(nil, directUnit)[:4])
	if probe && padding == 0 {
		t.Error("nothing was written directly, and this file system can")
	}
	out, err := exec.CommandContext(t.Context(), "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-c", "5000").Output()
	if err != nil || bytes.Count(out, []byte("\n")) != packets {
		t.Errorf("tshark read %d lines (%v): %.300s", bytes.Count(out, []byte("\n")), err, out)
	}
}

// openDirectIn reports whether this test's directory takes direct writes.
func openDirectIn(t *testing.T) bool {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := openDirect(f)
	if d == nil {
		return false
	}
	defer func() { _ = d.Close() }()
	_, err = d.WriteAt(alignedBuffer(directUnit)[:directUnit], 0)
	return err == nil
}

// TestFailedDirectWritesAreRepeated: a file system that refuses only when it is written to costs nothing
// but the attempt, and a disk that is behind is not written to directly.
func TestFailedDirectWritesAreRepeated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		calm   bool
		broken bool
	}{{"refused", true, true}, {"behind", false, false}, {"taken", true, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a.pcapng")
			o := Options{}.withDefaults()
			r, err := createRotating(path, &o)
			if err != nil {
				t.Fatal(err)
			}
			if tt.broken {
				if r.direct != nil {
					_ = r.direct.Close()
				}
				if r.direct, err = os.Open(path); err != nil { // it can be read only
					t.Fatal(err)
				}
			}
			blocks := directBatch()
			had := bytes.Clone(blocks)
			for range 2 {
				if err := r.write(blocks, func() []byte { return nil }, tt.calm); err != nil {
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
			if n := bytes.Count(b, had); n != 2 {
				t.Errorf("the blocks are in the file %d times, want twice", n)
			}
			if _, err := readAll(t, b); err != nil {
				t.Error(err)
			}
			if tt.name == "behind" && int64(len(b)) != int64(len(preamble(&o))+2*len(had)) {
				t.Errorf("%d bytes: it was padded for a direct write", len(b))
			}
		})
	}
}

// TestDirectWritesKeepToTheBound: a file that is written past the page cache is rotated where any other is.
func TestDirectWritesKeepToTheBound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	o := Options{MaxBytes: 3 * directMin}.withDefaults()
	r, err := createRotating(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if err := r.write(directBatch(), func() []byte { return nil }, true); err != nil {
			t.Fatal(err)
		}
		if r.Size > o.MaxBytes {
			t.Fatalf("a file of %d bytes, want at most %d", r.Size, o.MaxBytes)
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// directBatch is blocks that are written past the page cache where the file system can do that.
func directBatch() []byte {
	blocks := alignedBuffer(batchBytes)
	for len(blocks) < directMin {
		blocks = packetBlock(blocks, 1, FromGuest, [][]byte{frame(1, 1000)}, 1000, "", 0)
	}
	return blocks
}
