package state

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/joblog"
)

func newStoredJob(t *testing.T, dir string) *StoredJob {
	t.Helper()
	j := &StoredJob{JobStatus: JobStatus{Name: "a", State: JobRunning}}
	if err := j.Create(dir); err != nil {
		t.Fatal(err)
	}
	return j
}

// TestI14_JobEndsFollowNoLink in the place of the job's file. The twin is the file.
func TestI14_JobEndsFollowNoLink(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
		j := newStoredJob(t, dir)
		if linked {
			if err := os.Rename(JobPath(dir, "a"), other); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(other, JobPath(dir, "a")); err != nil {
				t.Fatal(err)
			}
		} else {
			other = JobPath(dir, "a")
		}
		before, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		j.State = JobExited
		err = j.Update(dir)
		after, readErr := os.ReadFile(other)
		if (err != nil) != linked || readErr != nil || slices.Equal(before, after) != linked {
			t.Errorf("linked %t: %v, %v; written to: %t", linked, err, readErr, !slices.Equal(before, after))
		}
	}
}

// TestI13_JobFilesOutliveTheirOutput: a kill between two removals leaves a job that can be removed again, and never
// output that belongs to none.
func TestI13_JobFilesOutliveTheirOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newStoredJob(t, dir)
	w := joblog.NewWriter(dir, "a")
	if _, err := w.Stream(joblog.Stdout).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	if err := RemoveJob(dir, "a"); err != nil {
		t.Fatal(err)
	}
	var gone []string
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		gone = append(gone, unix.ByteSliceToString(b[unix.SizeofInotifyEvent:size]))
		b = b[size:]
	}
	if len(gone) != 2 || gone[1] != "a.json" {
		t.Errorf("%q went, in this order", gone)
	}
}

// TestI13_JobsWhoseOutputStaysCanBeRemovedAgain: the file stays too, without which nothing would name the job.
func TestI13_JobsWhoseOutputStaysCanBeRemovedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newStoredJob(t, dir)
	w := joblog.NewWriter(dir, "a")
	_, err := w.Stream(joblog.Stdout).Write([]byte("x"))
	must(t, err)
	must(t, w.Close())
	entries, err := os.ReadDir(dir)
	must(t, err)
	var held string // a segment that can't be removed
	for _, e := range entries {
		if joblog.IsSegment(e.Name()) {
			held = filepath.Join(dir, e.Name())
			must(t, os.Remove(held))
			must(t, os.MkdirAll(filepath.Join(held, "x"), 0o700))
		}
	}
	if err := RemoveJob(dir, "a"); err == nil {
		t.Error("the output stays, and nobody was told")
	}
	if names, err := ListJobs(dir); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("jobs %q, %v", names, err)
	}
	must(t, os.RemoveAll(held))
	must(t, RemoveJob(dir, "a"))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
