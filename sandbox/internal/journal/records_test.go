package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_RestartsKeepRecordings: starts and stops with the capture off pushed a recording out, and after one restart a
// review showed nothing of it.
func TestI13_RestartsKeepRecordings(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("../../../testdata/pcap/tls-5-records.pcapng")
	must(t, err)
	for _, resume := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "link.pcapng")
		must(t, os.WriteFile(path, whole, 0o600))
		for range 2 * capture.DefaultKeep {
			r, err := OpenRecords(RecordFiles{Pcap: path, PcapOptions: state.PcapOptions{Off: true}, Resume: resume})
			must(t, err)
			must(t, r.Close(nil))
		}
		if b, err := os.ReadFile(path); err != nil || !slices.Equal(b, whole) {
			t.Fatalf("resume %v: off from start to end, and the recording is %d bytes of %d, %v", resume, len(b), len(whole), err)
		}
	}
	path := filepath.Join(t.TempDir(), "link.pcapng")
	must(t, os.WriteFile(path, whole, 0o600))
	for range 2 * capture.DefaultKeep {
		r, err := OpenRecords(RecordFiles{Pcap: path, Resume: true})
		must(t, err)
		must(t, r.SwitchCapture(false))
		must(t, r.SwitchCapture(true))
		must(t, r.Close(nil))
	}
	if b, err := os.ReadFile(path + ".1"); err != nil || !slices.Equal(b, whole) || there(t, path+".2") {
		t.Errorf("after restarts without a packet the recording is %d bytes of %d, %v", len(b), len(whole), err)
	}
	p, err := policies.Parse("p.toml", []byte("version = 1\n"), nil)
	must(t, err)
	direct := filepath.Join(t.TempDir(), "whole.pcapng")
	must(t, os.WriteFile(direct, whole, 0o600))
	want, err := review.Run(t.Context(), review.Options{Captures: []string{direct}, Policy: p})
	must(t, err)
	for _, captures := range [][]string{{path + ".1", path}, {path, path}, {path}} {
		got, err := review.Run(t.Context(), review.Options{Captures: captures, Policy: p})
		must(t, err)
		if got.Packets != want.Packets || got.Packets == 0 {
			t.Errorf("a review of %v shows %d packets, want %d", captures, got.Packets, want.Packets)
		}
	}
}

// TestI13_TwoSandboxesDontShareACapture: the second is an error, before anything runs, whether it begins at once or later.
func TestI13_TwoSandboxesDontShareACapture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "link.pcapng")
	first, err := OpenRecords(RecordFiles{Pcap: path})
	must(t, err)
	for _, off := range []bool{true, false} {
		if _, err := OpenRecords(RecordFiles{Pcap: path, PcapOptions: state.PcapOptions{Off: off}, Resume: true}); !errors.Is(err, capture.ErrBusy) {
			t.Errorf("off %v: %v, want ErrBusy", off, err)
		}
	}
	must(t, first.Close(nil))
	again, err := OpenRecords(RecordFiles{Pcap: path})
	must(t, err)
	must(t, again.Close(nil))
}

// TestI13_LearningNeverWaitsForReaders: at a pipe that nobody reads from, a supervisor waited for ever, also when its
// caller had gone.
func TestI13_LearningNeverWaitsForReaders(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(path, 0o600))
	if _, err := OpenRecords(RecordFiles{Learn: path}); !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "start the pipe's reader first") {
		t.Fatalf("%v, want an error that says that nobody reads", err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	r, err := OpenRecords(RecordFiles{Learn: path})
	must(t, err)
	must(t, r.Close(policies.Default()))
	b := make([]byte, 1<<10)
	if n, err := reader.Read(b); err != nil || !strings.Contains(string(b[:n]), "version = 1") {
		t.Errorf("the pipe's reader got %q, %v", b[:n], err)
	}
}

// TestI12_ALearnedPolicyIsThereWhole: what stood in the file stays until there is more to put in its place, also behind a
// link.
func TestI12_ALearnedPolicyIsThereWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "learned.toml"), filepath.Join(dir, "link")
	must(t, os.WriteFile(path, []byte("before"), 0o600))
	must(t, os.Symlink("learned.toml", link))
	before, err := os.Stat(path)
	must(t, err)
	r, err := OpenRecords(RecordFiles{Learn: link})
	must(t, err)
	if b, err := os.ReadFile(path); err != nil || string(b) != "before" {
		t.Errorf("it was opened, and holds %q, %v", b, err)
	}
	must(t, r.Close(policies.Default()))
	after, err := os.Stat(path)
	must(t, err)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink || os.SameFile(before, after) {
		t.Errorf("the link is %v, %v; written over in place: %t, so that a full disk leaves half", info.Mode(), err, os.SameFile(before, after))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestImpossibleCapturesAreErrors: also of those that begin without one.
func TestImpossibleCapturesAreErrors(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		files := RecordFiles{Pcap: filepath.Join(t.TempDir(), "nosuch", "link.pcapng"), PcapOptions: state.PcapOptions{Off: off}}
		if r, err := OpenRecords(files); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("off %v: %v, %v", off, r, err)
		}
	}
}

// TestI1_RecordsSayWhatWasNotWritten: an approval whose line can't be written doesn't stand, and what could not be captured is told at the end.
func TestI1_RecordsSayWhatWasNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := RecordFiles{Audit: filepath.Join(dir, "audit.jsonl"), Labels: map[string]string{"team": "blue"}, Pcap: filepath.Join(dir, "pcap", "link.pcapng"), Learn: filepath.Join(dir, "learned.toml")}
	must(t, os.Mkdir(filepath.Join(dir, "pcap"), 0o700))
	r, err := OpenRecords(files)
	must(t, err)
	must(t, r.Record(audit.Event{Kind: audit.AccessAnswer, Message: "approved"}))
	if text, err := os.ReadFile(files.Audit); err != nil || !strings.Contains(string(text), "approved") || !strings.Contains(string(text), `"team":"blue"`) {
		t.Errorf("the line and its labels: %s, %v", text, err)
	}
	r.Sink().Emit(audit.Event{Kind: audit.DNSQuery, Action: "deny", DNS: &audit.DNSDetail{Name: "a.example", Type: "A"}})
	must(t, r.SwitchCapture(false))
	must(t, os.RemoveAll(filepath.Join(dir, "pcap")))
	if err := r.SwitchCapture(true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a capture into no directory: %v", err)
	}
	p, err := policies.Parse("p.toml", []byte("version = 1\n"), nil)
	must(t, err)
	if err := r.Close(p); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the end says %v of the capture", err)
	}
	if err := r.Record(audit.Event{Kind: audit.AccessAnswer}); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("a line behind the end: %v", err)
	}
	if text, err := os.ReadFile(files.Learn); err != nil || !strings.Contains(string(text), "a.example") {
		t.Errorf("learned: %s, %v", text, err)
	}
	if info, err := os.Stat(files.Learn); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestCapturesAreSetAsideAsAsked: parts of one recording are kept, as many as were asked for.
func TestCapturesAreSetAsideAsAsked(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("../../../testdata/pcap/tls-5-records.pcapng")
	must(t, err)
	for keep, want := range map[int]bool{1: false, 2: true} {
		path := filepath.Join(t.TempDir(), "link.pcapng")
		for range 3 { // three runs that wrote something
			r, err := OpenRecords(RecordFiles{Pcap: path, Resume: true, PcapOptions: state.PcapOptions{Keep: keep}})
			must(t, err)
			must(t, r.Close(nil))
			must(t, os.WriteFile(path, whole, 0o600))
		}
		if !there(t, path+".1") || there(t, path+".2") != want || there(t, path+".3") {
			all, _ := filepath.Glob(path + "*")
			t.Errorf("%d kept: %q", keep, all)
		}
	}
	// A part that begins later, in a run that goes on with a recording.
	path := filepath.Join(t.TempDir(), "link.pcapng")
	r, err := OpenRecords(RecordFiles{Pcap: path})
	must(t, err)
	must(t, r.SwitchCapture(false))
	must(t, os.WriteFile(path, whole, 0o600))
	must(t, r.SwitchCapture(true))
	must(t, r.Close(nil))
	if b, err := os.ReadFile(path + ".1"); err != nil || !slices.Equal(b, whole) {
		t.Errorf("the part before is lost: %d bytes, %v", len(b), err)
	}
}
