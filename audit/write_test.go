package audit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestI1_WrittenEventsHaveTheirLine: when Write returns, the line is there, behind those of before; without an error it
// was never lost.
func TestI1_WrittenEventsHaveTheirLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenLog(path, Options{Sandbox: "box"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		l.Emit(Event{Kind: FlowOpen, Count: 7})
		if err := l.Write(Event{Kind: AccessAnswer, Action: "allow"}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := decode(t, data)
		if n := len(all); n != 2*(i+1) || all[n-1].Kind != AccessAnswer || all[n-1].Sandbox != "box" || all[n-2].Kind != FlowOpen {
			t.Errorf("%s", data)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Write(Event{Kind: AccessAnswer}); !errors.Is(err, ErrClosed) {
		t.Errorf("behind the end: %v", err)
	}
}

// refuser writes nothing, until it may.
type refuser struct {
	bytes.Buffer
	full bool
}

var errFull = errors.New("no space")

func (r *refuser) Write(b []byte) (int, error) {
	if r.full {
		return 0, errFull
	}
	return r.Buffer.Write(b)
}

func TestI1_UnwrittenEventsAreErrors(t *testing.T) {
	t.Parallel()
	out := &refuser{full: true}
	l := NewLog(out, Options{})
	if err := l.Write(Event{Kind: AccessAnswer}); !errors.Is(err, errFull) {
		t.Errorf("full: %v", err)
	}
	out.full = false // the writer waits for events
	if err := l.Write(Event{Kind: AccessAnswer}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := l.Close(); !errors.Is(err, errFull) {
		t.Error(err)
	}

	_, stuck := io.Pipe() // nobody reads
	l = NewLog(stuck, Options{Queue: 1})
	l.patience = time.Millisecond
	for range 3 { // in the writer's hands, in the queue, and before it
		if err := l.Write(Event{Kind: AccessAnswer}); !errors.Is(err, errSlow) {
			t.Errorf("stuck: %v", err)
		}
	}
	_ = stuck.Close()
	_ = l.Close()
}
