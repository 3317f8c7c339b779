package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// aPart writes a part with n packets, as a run of a sandbox does.
func aPart(t *testing.T, path string, o Options, n int) {
	t.Helper()
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.Packet(FromGuest, frame(i, 60), "")
	}
	w.Names("a.example", nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// packets counts those of each file of a recording, oldest first.
func packets(t *testing.T, path string) []int {
	t.Helper()
	var counts []int
	for _, part := range Parts(path) {
		b, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(t, b)
		if err != nil {
			t.Fatal(part, err)
		}
		n := 0
		for i := range all {
			if all[i].Kind == PacketRecord {
				n++
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// TestI13_EmptyPartsDisplaceNoFullOne: whatever mix of runs with and without packets, the youngest Keep full parts are
// there, in their order.
func TestI13_EmptyPartsDisplaceNoFullOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(32, 1))
	for range 20 {
		path := filepath.Join(t.TempDir(), "link.pcapng")
		const keep = 3
		var want []int
		for i := range 20 {
			n := r.IntN(3)
			if r.IntN(2) == 0 {
				n = 0
			}
			aPart(t, path, Options{Resume: i > 0, Keep: keep}, n)
			if len(want) > 0 && want[len(want)-1] == 0 {
				want = want[:len(want)-1]
			}
			want = append(want, n)
			want = want[max(0, len(want)-keep-1):]
			if got := packets(t, path); !slices.Equal(got, want) {
				t.Fatalf("run %d: parts of %v packets, want %v", i, got, want)
			}
		}
	}
}

// TestI13_StatisticsStartNoNewFile: what is written at the end of a full file doesn't open another.
func TestI13_StatisticsStartNoNewFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "link.pcapng")
	o := Options{MaxBytes: 600, Keep: 2}.withDefaults()
	r, err := createRotating(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	none := func() []byte { return nil }
	for i := range 3 * 5 {
		if err := r.write(packetBlock(nil, 1, FromGuest, [][]byte{frame(i, 60)}, 60, "", 0), none, true); err != nil {
			t.Fatal(err)
		}
		before := packets(t, path)
		for range 9 { // more than there is room for
			if err := r.write(statisticsBlock(nil, 1, 2, 3, 0, 0), none, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := packets(t, path); !slices.Equal(got, before) {
			t.Fatalf("after statistics: parts of %v packets, want %v", got, before)
		}
	}
	behind := packetBlock(nil, 1, FromGuest, [][]byte{frame(99, 60)}, 60, "", 0)
	for range 9 {
		behind = statisticsBlock(behind, 1, 2, 3, 0, 0)
	}
	if err := r.write(behind, none, true); err != nil {
		t.Fatal(err)
	}
	if got := packets(t, path); len(got) != 3 || slices.Contains(got, 0) {
		t.Errorf("parts of %v packets; want three, and none without", got)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// TestPartsAreThoseOfOneRecording: what an earlier recording left under such names, and what is no capture, is not among them.
func TestPartsAreThoseOfOneRecording(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "link.pcapng")
	for i := range 3 {
		aPart(t, path, Options{Resume: i > 0}, 1)
	}
	aPart(t, path, Options{}, 1)
	if got := Parts(path); !slices.Equal(got, []string{path}) {
		t.Errorf("a new recording has the parts of the old one: %v", got)
	}
	aPart(t, path, Options{Resume: true}, 2)
	for _, name := range []string{"01", "3x", "-1", "+2", "0", "99999999999999999999"} {
		if err := os.WriteFile(path+"."+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(path+".7", 0o700), os.WriteFile(path+".8", []byte("no capture"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := Parts(path); !slices.Equal(got, []string{path + ".1", path}) {
		t.Errorf("%v; want the two parts", got)
	}
	if got := Parts(path + ".1"); !slices.Equal(got, []string{path + ".1"}) {
		t.Errorf("of an old part: %v; want it alone", got)
	}
}

// TestI13_OneFileHasOneWriter: two writers of one file destroyed each other's recording. The second is an error, and what
// is there stays, after each rotation of the first one's too.
func TestI13_OneFileHasOneWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "link.pcapng")
	o := Options{MaxBytes: 600, Keep: 1000}.withDefaults()
	first, err := createRotating(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.pcapng")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	const n = 30
	for i := range n {
		if err := first.write(packetBlock(nil, 1, FromGuest, [][]byte{frame(i, 60)}, 60, "", 0), func() []byte { return nil }, true); err != nil {
			t.Fatal(err)
		}
		_, resumed := Create(path, Options{Resume: true})
		_, replaced := Create(link, Options{})
		for _, err := range []error{resumed, replaced, Check(path)} {
			if !errors.Is(err, ErrBusy) {
				t.Fatalf("after %d packets: %v, want ErrBusy", i, err)
			}
		}
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	total, parts := 0, packets(t, path)
	for _, n := range parts {
		total += n
	}
	if total != n || len(parts) < 5 {
		t.Errorf("parts of %v packets, want %d in all", parts, n)
	}
	if err := Check(path); err != nil {
		t.Errorf("after the first writer's end: %v", err)
	}
}

// TestI13_AFailedRotationWritesNothingOver: the full file keeps its name if it can't get another.
func TestI13_AFailedRotationWritesNothingOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "link.pcapng")
	aPart(t, path, Options{}, 2)
	if err := errors.Join(os.Mkdir(path+".1", 0o700), os.WriteFile(filepath.Join(path+".1", "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Create(path, Options{Resume: true, Keep: 1}); err == nil {
			t.Error("the rotation went through a directory")
		}
	}
	if got := packets(t, path); !slices.Equal(got, []int{2}) {
		t.Errorf("parts of %v packets, want the one of 2", got)
	}
}

// What is appended to a recording makes it no part of another.
func TestTheFirstSectionNamesTheRecording(t *testing.T) {
	t.Parallel()
	var file []byte
	for _, name := range []string{"one", "two"} {
		o := Options{recording: name}.withDefaults()
		file = append(file, preamble(&o)...)
	}
	r, err := NewReader(bytes.NewReader(file))
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) || r.Recording() != "one" {
		t.Errorf("recording %q, %v, want %q", r.Recording(), err, "one")
	}
}

// TestI13_NewCapturesKeepOlderFiles: `run --pcap FILE` twice, or with a file that is no capture at all.
func TestI13_NewCapturesKeepOlderFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(path, []byte("notes of somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	aPart(t, path, Options{}, 1)
	aPart(t, path, Options{}, 2)
	if text, err := os.ReadFile(path + ".2"); err != nil || string(text) != "notes of somebody's" {
		t.Errorf("what was there: %q, %v", text, err)
	}
	if parts := Parts(path); len(parts) != 1 {
		t.Errorf("recordings of their own are parts of one: %v", parts)
	}
	if _, ok := recordingOf(path + ".1"); !ok {
		t.Error("the first recording is gone")
	}
}
