package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/rotate/rotatetest"
)

// TestI1_AFullDiskLosesNothingUncounted fills the disk in the middle of a line: every line is whole, and once there is
// room the log says how much is missing, lost lines about losses included.
func TestI1_AFullDiskLosesNothingUncounted(t *testing.T) { // not parallel: the bound is the process's
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenLog(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const each = 7
	emitted := uint64(0)
	emit := func() {
		l.Emit(Event{Time: noon, Kind: FlowOpen, Action: deny, Count: each})
		emitted += each
	}
	emit()
	var full int64
	for full == 0 { // the writer is another goroutine
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		full = info.Size()
		time.Sleep(time.Millisecond)
	}
	more := rotatetest.FullAt(t, uint64(full+full/2))
	for before := uint64(0); before < 10*each; { // each batch is refused by itself
		emit()
		for l.Dropped() == before {
			time.Sleep(time.Millisecond)
		}
		before = l.Dropped()
	}
	more()
	emit()
	if err := l.Close(); err == nil {
		t.Error("no error of the full disk")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var there, told uint64
	for _, ev := range decode(t, data) {
		if ev.Kind == AuditDropped {
			told += ev.Count
		} else {
			there += ev.Count
		}
	}
	if there != 2*each || told != emitted-there || l.Dropped() != told {
		t.Errorf("of %d the log has %d and counts %d lost; Dropped says %d", emitted, there, told, l.Dropped())
	}
}

// TestI11_DeletedLinesAreReported: the line about a deleted file that the disk refused is made up for by the next.
func TestI11_DeletedLinesAreReported(t *testing.T) { // not parallel: the bound is the process's
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var last uint64
	r, err := openRotating(path, 20, 1, func(n uint64) []byte { last = n; return []byte("T\n") })
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		_, err := r.write([]byte("123456789\n"))
		return err
	}
	for range 4 { // two files are full
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	more := rotatetest.FullAt(t, 1)
	err = write()
	more()
	if err == nil || last != 2 {
		t.Fatalf("%d lines were deleted: %v; want 2, and an error", last, err)
	}
	for range 3 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if last != 4 {
		t.Errorf("the last line counts %d deleted ones, want 4: those whose own line is missing too", last)
	}
}
