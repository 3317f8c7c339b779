package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ports reads on and returns the ports of what came.
func ports(t *testing.T, tail *Tail) (got []uint16) {
	t.Helper()
	err := tail.Next(func(_ []byte, ev *Event) error {
		if ev.Kind == FlowOpen {
			got = append(got, ev.Port)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTailFollowsOverRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	tail := NewTail(path)
	defer tail.Close()
	if got := ports(t, tail); len(got) > 0 {
		t.Errorf("of no file: %v", got)
	}
	out, err := openRotating(path, 300, 4, func(uint64) []byte { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer out.close()
	next := uint16(1)
	write := func(n int) {
		for range n {
			line, err := newEncoder().appendLine(nil, Event{Kind: FlowOpen, Port: next})
			if err == nil {
				_, err = out.write(line)
			}
			if err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	seen := uint16(1)
	// Each file takes some three lines: within a file, to its border, over one rotation and over several.
	for _, n := range []int{1, 1, 1, 0, 2, 3, 5, 1, 7, 0, 4} {
		write(n)
		for _, port := range ports(t, tail) {
			if port != seen {
				t.Fatalf("got line %d, want %d", port, seen)
			}
			seen++
		}
		if seen != next {
			t.Errorf("read up to line %d of %d", seen-1, next-1)
		}
	}
	if _, err := os.Stat(path + ".3"); err != nil {
		t.Errorf("too few rotations for this test: %v", err)
	}
	again := NewTail(path)
	defer again.Close()
	if got := ports(t, again); len(got) == 0 || got[len(got)-1] != next-1 || got[0] != next-uint16(len(got)) {
		t.Errorf("from the oldest file on: %v", got)
	}
}

// TestTailFromTheEndOn leaves out what is there, and passes on the error of who reads.
func TestTailFromTheEndOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	none, tail := NewTail(path), NewTail(path)
	defer tail.Close()
	if err := none.SkipToEnd(); err != nil {
		t.Errorf("of no file: %v", err)
	}
	for port, skip := range []bool{false, true, false} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(f, "{\"kind\":\"flow.open\",\"port\":%d}\n", port); err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if skip {
			if err := tail.SkipToEnd(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := fmt.Sprint(ports(t, tail)); got != "[2]" {
		t.Errorf("got %s, want [2]", got)
	}
	stop := errors.New("stop")
	again := NewTail(path)
	defer again.Close()
	if err := again.Next(func([]byte, *Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the reader's error", err)
	}
	if err := NewTail(filepath.Dir(path)).SkipToEnd(); !errors.Is(err, ErrNoFile) {
		t.Errorf("a directory: %v", err)
	}
}

func TestI12_TailPassesOverDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	line := func(port int) string {
		return fmt.Sprintf("{\"time\":\"2026-01-02T03:04:05Z\",\"kind\":\"flow.open\",\"port\":%d}\n", port)
	}
	text := line(1) + "{\"kind\":\n" + "\n" + strings.Repeat("x", maxLine+10) + "\n" + line(2) + strings.TrimSuffix(line(3), "}\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tail := NewTail(path)
	defer tail.Close()
	if got := fmt.Sprint(ports(t, tail)); got != "[1 2]" || tail.Bad != 2 {
		t.Errorf("got %s and %d bad lines, want [1 2] and 2", got, tail.Bad)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("}\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(ports(t, tail)); got != "[3]" {
		t.Errorf("the rest of a line: got %s", got)
	}
	dir := NewTail(filepath.Dir(path))
	if err := dir.Next(nil); !errors.Is(err, ErrNoFile) {
		t.Errorf("a directory: %v", err)
	}
}

func TestI12_TailCountsWhatCantBeRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	line := func(port, size int) string {
		text := fmt.Sprintf("{\"time\":\"2026-01-02T03:04:05Z\",\"kind\":\"flow.open\",\"port\":%d}", port)
		return text + strings.Repeat(" ", max(0, size-len(text))) + "\n"
	}
	for name, text := range map[string]string{
		".1": line(1, 0) + "{\"kind\":", // its writer was killed
		"":   line(2, maxLine) + line(3, maxLine+1) + line(4, 0),
	} {
		if err := os.WriteFile(path+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tail := NewTail(path)
	defer tail.Close()
	if got := fmt.Sprint(ports(t, tail)); got != "[1 2 4]" || tail.Bad != 2 {
		t.Errorf("got %s and %d bad lines, want [1 2 4] and 2", got, tail.Bad)
	}
}
