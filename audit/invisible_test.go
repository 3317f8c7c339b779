package audit

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestNoLineHoldsWhatHides has strings of a guest with characters that terminals
// and editors act on, or show as nothing, in the JSON and the human form.
func TestNoLineHoldsWhatHides(t *testing.T) {
	for _, c := range "\u007f\u0085\u009b\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2063\u2066\u2069\u206f\ufeff\ufff9\ufffb" {
		var buf bytes.Buffer
		l := NewLog(&buf, Options{})
		e := Event{Kind: HTTPRequest, Path: "/a" + string(c) + "b", Method: "GE" + string(c) + "T", Host: "x" + string(c)}
		l.Emit(e)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(buf.String(), c) || !strings.Contains(buf.String(), "/a") {
			t.Errorf("%U: %q", c, buf.String())
		}
		if human := FormatHuman(e); strings.ContainsRune(human, c) {
			t.Errorf("%U: %q", c, human)
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestUnwrittenLinesAreCounted emits fewer events than the queue holds:
// only the disk loses them.
func TestUnwrittenLinesAreCounted(t *testing.T) {
	l := NewLog(full{}, Options{})
	for range 5 {
		l.Emit(Event{Kind: FlowOpen})
	}
	if err := l.Close(); err == nil {
		t.Error("Close returns no error")
	}
	if n := l.Dropped(); n < 5 {
		t.Errorf("%d events are counted as lost, want 5", n)
	}
}

// TestUnencodableLinesAreCounted: JSON has no year 10000.
func TestUnencodableLinesAreCounted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewLog(&out, Options{})
	l.Emit(Event{Kind: FlowOpen, Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	l.Emit(Event{Kind: FlowOpen})
	if err := l.Close(); err == nil || l.Dropped() != 1 || bytes.Count(out.Bytes(), []byte(FlowOpen)) != 1 || bytes.Count(out.Bytes(), []byte(AuditDropped)) != 1 {
		t.Errorf("%v, %d lost, written:\n%s", err, l.Dropped(), out.Bytes())
	}
}
