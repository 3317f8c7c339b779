package sandbox

import (
	"io"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/joblog"
)

// TestI11_TailsEndWhereTheyBegan: a job may write faster than its log is read, and its lines are not counted then.
func TestI11_TailsEndWhereTheyBegan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := joblog.NewWriter(dir, "job")
	_, _ = io.WriteString(w.Stream(joblog.Stdout), "before\n")
	l := &JobLog{
		ctx: t.Context(), opts: LogOptions{Follow: true, Tail: 1}, opened: time.Now(), final: true,
		lines: joblog.NewLines(dir, "job"),
	}
	defer l.Close()
	for !time.Now().After(l.opened) {
	}
	_, _ = io.WriteString(w.Stream(joblog.Stdout), "after\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.skip(); err != nil {
		t.Fatal(err)
	}
	if e, err := l.Next(); err != nil || string(e.Data) != "before\n" {
		t.Errorf("%q, %v; want the last line of what was there", e.Data, err)
	}
}
