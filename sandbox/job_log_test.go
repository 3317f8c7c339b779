package sandbox

import (
	"errors"
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
	l := &LogReader{
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

// TestOutputComesInParts, of both streams, and says where the next part begins.
func TestOutputComesInParts(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	j := k.run(t, "build", "write", "one\ntwo\n", "Error\n", "end")
	_, err := j.Wait(t.Context())
	must(t, err)
	all, err := j.Output(0, 100)
	must(t, err)
	if len(all.Data) != 17 || all.Next != 17 || all.Missing != 0 {
		t.Errorf("all: %q, %+v", all.Data, all)
	}
	for from, want := range map[int64]string{-1: "one\n", 4: "two\n", 15: string(all.Data[15:]), 17: "", 1 << 60: ""} {
		o, err := j.Output(from, 4)
		if err != nil || string(o.Data) != want || o.Missing != 0 || o.Next != max(from, 0)+int64(len(want)) {
			t.Errorf("from %d: %q, %+v, %v; want %q", from, o.Data, o, err, want)
		}
	}
	if n, err := j.OutputSize(); n != 17 || err != nil {
		t.Errorf("%d bytes in all, %v; want 17", n, err)
	}
	must(t, j.Remove(t.Context()))
	if _, err := j.Output(0, 4); !errors.Is(err, ErrNoJob) {
		t.Errorf("of a job that is removed: %v", err)
	}
}
