package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLabelsAreOnEveryLine, those about the log itself too. An event's own label wins over the log's.
func TestLabelsAreOnEveryLine(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"pod": "web", "container": "all"}
	own := map[string]string{"container": "c1"}
	want := maps.Clone(labels)
	var b bytes.Buffer
	l := NewLog(&b, Options{Labels: labels})
	l.Emit(Event{Kind: FlowOpen})
	l.Emit(Event{Kind: ExecStart, Labels: own})
	l.Emit(Event{Kind: FlowOpen})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lines := decode(t, b.Bytes())
	if len(lines) != 3 || !maps.Equal(lines[0].Labels, want) || !maps.Equal(lines[2].Labels, want) || !maps.Equal(lines[1].Labels, map[string]string{"pod": "web", "container": "c1"}) {
		t.Errorf("lines %v", lines)
	}
	if !maps.Equal(labels, want) || len(own) != 1 {
		t.Errorf("the caller's labels changed: %v, %v", labels, own)
	}
	for _, ev := range []Event{droppedEvent(noon, l.options, 1), rotatedEvent(noon, l.options, 1)} {
		if !maps.Equal(ev.Labels, labels) {
			t.Errorf("%s has the labels %v", ev.Kind, ev.Labels)
		}
	}
}

// TestLabelsOfARotatedLog: the line at the head of a file has them.
func TestLabelsOfARotatedLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenLog(path, Options{MaxBytes: 200, Keep: 1, Labels: map[string]string{"pod": "web"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := l.Write(Event{Kind: FlowOpen, Message: strings.Repeat("x", 150)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := decode(t, b)
	if len(lines) == 0 || lines[0].Kind != AuditRotated || lines[0].Labels["pod"] != "web" {
		t.Errorf("lines %v", lines)
	}
}

func TestI11_LabelsAreBounded(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprintf("k%02d", i)] = "v"
	}
	long := strings.Repeat("x", maxString+1)
	for name, labels := range map[string]map[string]string{
		"many": many, "long value": {"pod": long}, "long key": {long: "v"}, "64 bytes of key": {strings.Repeat("k", 64): ""},
		"capital": {"Pod": ""}, "empty": {"": ""}, "escape": {"a\x1b": ""}, "digit": {"1a": ""},
	} {
		if err := CheckLabels(labels); !errors.Is(err, ErrLabels) {
			t.Errorf("%s: %v", name, err)
		}
		if got := bounded(Event{Labels: labels}).Labels; len(got) > maxLabels || len(got) == 0 {
			t.Errorf("%s: %d labels after bounded", name, len(got))
		} else {
			for k, v := range got {
				if len(k) > maxString+len(cutMark) || len(v) > maxString+len(cutMark) {
					t.Errorf("%s: %d and %d bytes after bounded", name, len(k), len(v))
				}
			}
		}
	}
	delete(many, "k00")
	for _, labels := range []map[string]string{nil, many, {"namespace": strings.Repeat("x", maxString), "a.b_c-9": "\x1b"}} {
		if err := CheckLabels(labels); err != nil {
			t.Error(err)
		}
	}
}
