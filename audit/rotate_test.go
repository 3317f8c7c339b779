package audit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A guest that makes many lines pushes old ones out of the log: each of them
// must be accounted for in what is left, or be counted in what was deleted.
func TestI11_LinesRotatedAwayAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenLog(path, Options{MaxBytes: 2048, Keep: 2, Sandbox: "box"})
	if err != nil {
		t.Fatal(err)
	}
	const emitted = 400
	for i := range emitted {
		l.Emit(Event{Time: noon, Kind: FlowOpen, Flow: uint64(i + 1)})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Each deleted file began with a line of its own about the one before: such
	// lines are counted too, so what is left tells of the last deletion only, and
	// the first flow that is left says how many are gone.
	var flows, first uint64
	for i, name := range []string{path + ".2", path + ".1", path} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, ev := range decode(t, data) {
			if (n == 0) != (ev.Kind == AuditRotated) {
				t.Errorf("%s line %d is %s: the first line, and no other, reports the deletion", name, n+1, ev.Kind)
			}
			if n == 0 {
				if ev.Count == 0 || ev.Sandbox != "box" || ev.Time.IsZero() || ev.Message == "" {
					t.Errorf("%s begins with %+v", name, ev)
				}
				continue
			}
			if flows++; i == 0 && n == 1 {
				first = ev.Flow
			}
		}
	}
	if first-1+flows != emitted {
		t.Errorf("first flow left is %d and %d are there, want %d in all", first, flows, emitted)
	}
}

func TestI11_RotationCountsDeletedLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var told []uint64
	r, err := openRotating(path, 20, 2, func(n uint64) []byte { told = append(told, n); return []byte("T\n") })
	if err != nil {
		t.Fatal(err)
	}
	for range 30 { // 10 bytes each: two to the first files, one more than a T to those after
		if _, err := r.write([]byte("123456789\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	var sum, left uint64
	for _, n := range told {
		sum += n
	}
	for _, name := range []string{path, path + ".1", path + ".2"} {
		n, err := linesIn(name)
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	if written := uint64(30 + len(told)); sum == 0 || sum+left != written {
		t.Errorf("%d counted and %d left, want %d in all", sum, left, written)
	}
	if n, err := linesIn(path + ".3"); n != 0 || err != nil {
		t.Errorf("a file that isn't there: %d, %v", n, err)
	}
	if _, err := linesIn(filepath.Dir(path)); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory: %v, want an error", err)
	}
}
