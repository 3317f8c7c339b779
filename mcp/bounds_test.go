package mcp

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// TestI11_LogLinesAreBounded in bytes each, so that those that wait are too.
func TestI11_LogLinesAreBounded(t *testing.T) {
	t.Parallel()
	l := make(logWriter, maxLogLines)
	long := []byte(strings.Repeat("é", 4<<20) + "\n")
	kept := bytes.Clone(long)
	for range 2 * maxLogLines {
		if n, err := l.Write(long); n != len(long) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if !bytes.Equal(long, kept) {
		t.Error("the caller's line is changed")
	}
	for range maxLogLines {
		if line := <-l; cap(line) > 2*maxLogLine || len(line) > maxLogLine || !bytes.HasSuffix(line, []byte("…\n")) || !utf8.Valid(line) {
			t.Fatalf("a line of %d bytes, %d held: %.20q", len(line), cap(line), line)
		}
	}
	if _, _ = l.Write([]byte("short\n")); string(<-l) != "short\n" {
		t.Error("a short line is changed")
	}
}

// TestI11_LogsOfCallsAreShort: no error repeats a long argument in the log.
func TestI11_LogsOfCallsAreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x01", 1<<20)
	for _, err := range []error{wrong("%q", long), io.ErrUnexpectedEOF} {
		if f := failure(err); len(f.why) > 1000 || len(f.text) > 2*maxSentence {
			t.Errorf("%d bytes in the log, %d in the result", len(f.why), len(f.text))
		}
	}
}

// TestI11_PromptsAreBounded: what a prompt repeats of its arguments.
func TestI11_PromptsAreBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for over := range 2 {
		r, err := p.client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "try_untrusted_code", Arguments: map[string]string{"what": strings.Repeat("w", maxPrompt+over)}})
		if (err != nil) != (over > 0) {
			t.Errorf("%d bytes too many: %+v, %v", over, r, err)
		}
	}
}

// TestI11_ListsOfJobsAreBounded, and stand between marks: why a job was lost may be in the guest's words.
func TestI11_ListsOfJobsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("echo long; ", 12_000)
	jobs := slices.Repeat([]sandbox.JobStatus{{Name: "web", Command: []string{"/bin/sh", "-c", long}}}, 40)
	s := jobTools{calls: newCalls()}
	text, err := s.listJobs(slices.Clone(jobs))
	if err != nil || len(text) > outputBudget+200 || strings.Count(text, `"web"`) != 40 {
		t.Errorf("%d bytes, %d jobs, %v", len(text), strings.Count(text, `"web"`), err)
	}
	for i := range jobs {
		jobs[i].Reason = hostileName + strings.Repeat("x", 10_000)
	}
	if text, err = s.listJobs(jobs); err != nil || len(text) > outputBudget+200 || strings.Contains(outside(t, text), "obey") {
		t.Errorf("%d bytes, %v: %.100q", len(text), err, outside(t, text))
	}
}

// outside is what of a result stands outside of marks.
func outside(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "[untrusted sandbox output ")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		id, rest, _ := strings.Cut(rest, ":")
		_, rest, found = strings.Cut(rest, "\n[end "+id+"]")
		if !found {
			t.Errorf("a mark without an end: %.200q", text)
		}
		text = rest
	}
}
