package joblog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onDisk is what the log takes, in bytes.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		n += info.Size()
	}
	return n
}

// drain reads pieces until there are no more yet.
func drain(t *testing.T, r *Reader) (out []byte, missing int64) {
	t.Helper()
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, missing
		}
		must(t, err)
		out, missing = append(out, p.Data...), missing+p.Missing
	}
}

func TestOutputIsReadLive(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	r := newReader(w.dir, "a")
	defer func() { _ = r.Close() }()
	if out, _ := drain(t, r); len(out) > 0 {
		t.Errorf("%q before anything was written", out)
	}
	var want []byte
	for i := range 3 * segmentBytes / 4096 {
		p := bytes.Repeat([]byte{byte(i)}, 4096)
		_, err := w.Stream(Stdout).Write(p)
		must(t, err)
		if want = append(want, p...); i%100 == 0 {
			got, missing := drain(t, r)
			if !bytes.Equal(got, want) || missing != 0 {
				t.Fatalf("after %d: %d bytes and %d missing, want %d", i, len(got), missing, len(want))
			}
			want = nil
		}
	}
	must(t, w.Close())
	if got, _ := drain(t, r); !bytes.Equal(got, want) || r.Pos() != w.Total() {
		t.Errorf("%d bytes at the end, want %d; %d of %d", len(got), len(want), r.Pos(), w.Total())
	}
}

// TestI11_ARingKeepsItsBound: whatever a guest writes, in lines or without an end. Its twin is the size of what was
// written.
func TestI11_ARingKeepsItsBound(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	slow := newReader(w.dir, "a")
	defer func() { _ = slow.Close() }()
	chunk := bytes.Repeat([]byte("x"), 100_000) // above MaxPayload, without a newline
	var most int64
	for i := range 400 {
		_, err := w.Stream(Stream(i%2 + 1)).Write(chunk)
		must(t, err)
		most = max(most, onDisk(t, w.dir))
		if i == 0 {
			_, err := slow.Next() // and then it stops reading
			must(t, err)
		}
	}
	must(t, w.Close())
	if most > MaxBytes || w.Total() <= 4*MaxBytes {
		t.Errorf("%d bytes on the disk of %d written, want at most %d", most, w.Total(), MaxBytes)
	}
	r := newReader(w.dir, "a")
	defer func() { _ = r.Close() }()
	out, missing := drain(t, r)
	if int64(len(out))+missing != w.Total() || len(out) < (segmentsKept-1)*segmentBytes {
		t.Errorf("%d bytes and %d missing, of %d", len(out), missing, w.Total())
	}
	before := slow.Pos()
	out, missing = drain(t, slow)
	if before+int64(len(out))+missing != w.Total() || missing == 0 {
		t.Errorf("a slow reader got %d, then %d and %d missing, of %d", before, len(out), missing, w.Total())
	}
}

// TestLatePagesReadNoEarlierSegment: the segments before a page are made unreadable, and the page comes. The twin reads
// from the beginning.
func TestLatePagesReadNoEarlierSegment(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	var all []byte
	for i := range 3 * segmentBytes / 4000 {
		p := bytes.Repeat([]byte{byte(i)}, 4000)
		_, err := w.Stream(Stream(i%2 + 1)).Write(p)
		must(t, err)
		all = append(all, p...)
	}
	must(t, w.Close())
	page := func(from int64) []byte {
		t.Helper()
		data, missing, err := ReadFrom(w.dir, "a", from, 9000)
		if err != nil || missing != 0 || !bytes.Equal(data, all[from:min(from+9000, int64(len(all)))]) {
			t.Errorf("from %d: %d bytes, %d missing, %v", from, len(data), missing, err)
		}
		return data
	}
	for from := int64(0); from < int64(len(all)); from += 77_777 {
		page(from)
	}
	page(int64(len(all)))
	if data, missing, err := ReadFrom(w.dir, "a", 1<<60, 10); len(data) > 0 || missing != 0 || err != nil {
		t.Errorf("behind the end: %d bytes, %d missing, %v", len(data), missing, err)
	}
	numbers, err := segments(w.dir, "a")
	must(t, err)
	for _, n := range numbers[:len(numbers)-1] {
		must(t, os.WriteFile(w.path(n), bytes.Repeat([]byte{255}, 64), 0o600))
	}
	if got := page(int64(len(all)) - 5000); len(got) != 5000 {
		t.Errorf("the last page: %d bytes", len(got))
	}
	if _, _, err := ReadFrom(w.dir, "a", 0, 10); !errors.Is(err, ErrDamaged) {
		t.Errorf("the first page, which is damaged: %v", err)
	}
}

// TestPagesFollowTheOrderOfWriting: a line that is not ended yet moves nothing that was written behind its beginning.
func TestPagesFollowTheOrderOfWriting(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	defer func() { must(t, w.Close()) }()
	var from int64
	for _, step := range []struct {
		s          Stream
		text, page string
	}{{Stdout, "ab", "ab"}, {Stderr, "x", "x"}, {Stdout, "c\n", "c\n"}, {Stderr, "y\n", "y\n"}} {
		_, err := w.Stream(step.s).Write([]byte(step.text))
		must(t, err)
		data, missing, err := ReadFrom(w.dir, "a", from, 100)
		if string(data) != step.page || missing != 0 || err != nil {
			t.Errorf("from %d: %q, %d missing, %v; want %q", from, data, missing, err, step.page)
		}
		from += int64(len(data))
	}
}

// TestPagesAddUpToTheLog, whatever is missing in it: at its beginning and in its middle.
func TestPagesAddUpToTheLog(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	now := time.Unix(1_700_000_000, 0)
	w.now = func() time.Time { return now }
	for i := range 12 {
		p := bytes.Repeat([]byte{byte('a' + i)}, 200_000)
		if i == 9 { // no room for this one
			must(t, w.closeSegment())
			w.retry = now.Add(retryAfter)
		}
		_, err := w.Stream(Stdout).Write(p)
		must(t, err)
		now = now.Add(2 * retryAfter)
		if i != 9 {
			w.open.Size = segmentBytes // the next one begins a segment
		}
	}
	must(t, w.Close())
	r := newReader(w.dir, "a")
	defer func() { _ = r.Close() }()
	want, wantMissing := drain(t, r)
	var got []byte
	var missing, from int64
	for {
		data, gap, err := ReadFrom(w.dir, "a", from, 33_333)
		must(t, err)
		if len(data) == 0 && gap == 0 {
			break
		}
		got, missing, from = append(got, data...), missing+gap, from+gap+int64(len(data))
	}
	if !bytes.Equal(got, want) || missing != wantMissing || from != w.Total() || missing == 0 {
		t.Errorf("%d bytes, %d missing, next %d; want %d, %d, %d", len(got), missing, from, len(want), wantMissing, w.Total())
	}
	if n, err := Size(w.dir, "a"); n != w.Total() || err != nil {
		t.Errorf("%d bytes in all, %v; want %d", n, err, w.Total())
	}
	if n, err := Size(w.dir, "none"); n != 0 || err != nil {
		t.Errorf("%d bytes of no log, %v", n, err)
	}
	if data, gap, err := ReadFrom(w.dir, "a", 5, 10); len(data) != 10 || gap != wantMissing-200_000-5 || err != nil {
		t.Errorf("in what is missing: %d bytes, %d missing, %v", len(data), gap, err)
	}
}

// TestLinesBetweenPollsAreRead: a record at the end of a segment, and the next segment, while the reader finds
// nothing more in the one and looks for the other.
func TestLinesBetweenPollsAreRead(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	put := func(text string) {
		_, err := w.Stream(Stdout).Write([]byte(text))
		must(t, err)
	}
	put("first\n")
	r := newReader(w.dir, "a")
	defer func() { _ = r.Close() }()
	_, err := r.Next()
	must(t, err)
	r.list = func(dir, name string) ([]uint64, error) {
		r.list = segments
		put("second\n")
		w.open.Size = segmentBytes
		put("third\n")
		return segments(dir, name)
	}
	if out, missing := drain(t, r); string(out) != "second\nthird\n" || missing != 0 {
		t.Errorf("%q and %d missing", out, missing)
	}
	must(t, w.Close())
}

// TestAHeldLogIsReadTwice also when its writer has deleted all of it meanwhile. The twin is a reader that held nothing.
func TestAHeldLogIsReadTwice(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{true, false} {
		w := NewWriter(t.TempDir(), "a")
		put := func(text string) {
			_, err := w.Stream(Stdout).Write([]byte(text))
			must(t, err)
			w.open.Size = segmentBytes // the next one begins a segment
		}
		put("1")
		put("2")
		l := NewLines(w.dir, "a")
		if hold {
			must(t, l.Hold())
		}
		first, _ := drain(t, l.Reader)
		for i := range segmentsKept {
			put(string(rune('a' + i)))
		}
		l.Rewind()
		again, missing := drain(t, l.Reader)
		if string(first) != "12" || hold && (string(again) != "12abcdefgh" || missing != 0) || !hold && (string(again) != "abcdefgh" || missing != 2) {
			t.Errorf("held %t: %q, then %q and %d missing", hold, first, again, missing)
		}
		must(t, l.Close())
		must(t, w.Close())
	}
}

func TestLinesAreWholeAndBounded(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	for _, p := range []struct {
		s    Stream
		text string
	}{{Stdout, "one\ntw"}, {Stderr, "err"}, {Stdout, "o\n\n"}, {Stderr, "or\n"}, {Stdout, strings.Repeat("l", maxLine+3) + "\n"}, {Stderr, "open"}} {
		_, err := w.Stream(p.s).Write([]byte(p.text))
		must(t, err)
	}
	must(t, w.Close())
	l := NewLines(w.dir, "a")
	defer func() { _ = l.Close() }()
	var got []string
	add := func(line Line) {
		text := string(line.Data)
		if len(text) > 10 {
			text = fmt.Sprintf("%d bytes", len(text))
		}
		got = append(got, line.Stream.String()+" "+text)
	}
	for {
		line, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		add(line)
	}
	for _, line := range l.Rest() {
		add(line)
	}
	want := []string{"stdout one\n", "stdout two\n", "stdout \n", "stderr error\n", "stdout 16384 bytes", "stdout lll\n", "stderr open"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestI12_FullDisksCountLostOutput: the writer goes on, and what comes when there is room again is kept.
func TestI12_FullDisksCountLostOutput(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	room, broken := int64(segmentBytes), false
	w := NewWriter(t.TempDir(), "a")
	w.now = func() time.Time { return now }
	w.Room = func() (int64, error) { return room, nil }
	w.opener = func(path string) (*os.File, error) {
		if broken {
			return os.OpenFile("/dev/full", os.O_WRONLY, 0)
		}
		return openNew(path)
	}
	put := func(text string) {
		n, err := w.Stream(Stdout).Write([]byte(text))
		if n != len(text) || err != nil {
			t.Errorf("%q: %d, %v; want the job to go on", text, n, err)
		}
	}
	put("first\n")
	w.open.File, _ = os.OpenFile("/dev/full", os.O_WRONLY, 0)
	put("lost 1\n")
	room = segmentBytes - 1
	now = now.Add(retryAfter)
	put("lost 2\n")
	room, broken = segmentBytes, true
	now = now.Add(retryAfter)
	put("lost 3\n")
	broken = false
	put("lost 4\n") // too soon
	now = now.Add(retryAfter)
	put("last\n")
	must(t, w.Close())
	const lost = 4 * 7
	now = now.Add(retryAfter)
	put("closed\n") // dropped, whatever room there is
	if w.Lost() != lost+7 {
		t.Errorf("%d lost, want %d", w.Lost(), lost+7)
	}
	r := newReader(w.dir, "a")
	defer func() { _ = r.Close() }()
	if out, missing := drain(t, r); string(out) != "first\nlast\n" || missing != lost {
		t.Errorf("%q and %d missing", out, missing)
	}
	if n, err := segments(w.dir, "a"); err != nil || len(n) != 2 {
		t.Errorf("segments %v, %v; a full disk leaves no empty ones", n, err)
	}
}

// TestI13_HalfARecordIsNoOutput: it is what a kill leaves.
// TestResumedLogsGoOn in the segment in which another writer ended, or in a new one where that is not as it was left.
func TestResumedLogsGoOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		damage   func(path string) error
		out      string
		segments int
		missing  int64
	}{
		{func(string) error { return nil }, "onetwo", 1, 0},
		{func(path string) error { return os.Truncate(path, recordHead+8+recordHead) }, "two", 2, 3},
		{os.Remove, "two", 1, 3},
	} {
		dir := t.TempDir()
		w := NewWriter(dir, "a")
		_, err := w.Stream(Stdout).Write([]byte("one"))
		must(t, errors.Join(err, w.Close(), c.damage(w.path(0))))
		again, err := Resume(dir, "a", w.Total(), w.Lost())
		must(t, err)
		_, err = again.Stream(Stderr).Write([]byte("two"))
		must(t, errors.Join(err, again.Close()))
		r := newReader(dir, "a")
		out, missing := drain(t, r)
		all, err := segments(dir, "a")
		if string(out) != c.out || missing != c.missing || len(all) != c.segments || err != nil || again.Total() != 6 || again.Lost() != 0 {
			t.Errorf("%q with %d missing in segments %v, %v; want %+v", out, missing, all, err, c)
		}
		must(t, r.Close())
	}
	if w, err := Resume(t.TempDir(), "a", 0, 0); err != nil || w.next != 0 {
		t.Errorf("of no output: %+v, %v", w, err)
	}
}

// TestFullRingsNeedNoRoom: a new segment takes the place of the oldest.
func TestFullRingsNeedNoRoom(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	write := func(bytes int) {
		_, err := w.Stream(Stdout).Write(make([]byte, bytes))
		must(t, err)
	}
	write(segmentsKept * segmentBytes)
	w.Room = func() (int64, error) { return 0, nil }
	write(2 * segmentBytes)
	if w.Lost() != 0 {
		t.Errorf("%d bytes were lost", w.Lost())
	}
	must(t, w.Close())
}

func TestI13_HalfARecordIsNoOutput(t *testing.T) {
	t.Parallel()
	w := NewWriter(t.TempDir(), "a")
	for range 2 {
		_, err := w.Stream(Stdout).Write([]byte("all of it\n"))
		must(t, err)
	}
	must(t, w.Close())
	file := w.path(0)
	whole, err := os.Stat(file)
	must(t, err)
	for cut := whole.Size() - 1; cut > whole.Size()-recordHead-10; cut-- {
		must(t, os.Truncate(file, cut))
		r := newReader(w.dir, "a")
		if out, _ := drain(t, r); string(out) != "all of it\n" {
			t.Errorf("cut at %d: %q", cut, out)
		}
		must(t, r.Close())
	}
}

func TestI12_DamagedLogsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, b := range [][]byte{
		bytes.Repeat([]byte{0}, 20), bytes.Repeat([]byte{1}, 20), appendRecord(nil, position, time.Now(), []byte("short")), bytes.Repeat([]byte{255}, 64),
		appendRecord(nil, position, time.Now(), bytes.Repeat([]byte{255}, positionLen)), // below 0
	} {
		must(t, os.WriteFile(filepath.Join(dir, segmentName("a", 0)), b, 0o600))
		r := newReader(dir, "a")
		if _, err := r.Next(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%x: %v", b, err)
		}
		must(t, r.Close())
	}
}

func TestI14_OnlyOwnSegmentsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := []string{"ab.0.log", "a.log", "a.00.log", "a.-1.log", "a.1.log.x", "a.json", ".a.0.log", "a.0.logx"}
	for _, name := range append([]string{"a.0.log", "a.18446744073709551615.log"}, keep...) {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, Remove(dir, "a"))
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != len(keep) {
		t.Errorf("left: %v, want %v", entries, keep)
	}
	if !errors.Is(os.Remove(filepath.Join(dir, "a.0.log")), syscall.ENOENT) {
		t.Error("its own is there still")
	}
}

func TestI14_LinkedSegmentsAreNotRead(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(other, appendRecord(nil, Stdout, time.Now(), []byte("private")), 0o600))
	must(t, os.Symlink(other, filepath.Join(dir, segmentName("a", 0))))
	r := newReader(dir, "a")
	if err := r.Hold(); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("held: %v", err)
	}
	if p, err := r.Next(); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("read %q, %v", p.Data, err)
	}
	must(t, r.Close())
}

func FuzzReadRecord(f *testing.F) {
	f.Add(appendRecord(nil, Stdout, time.Unix(1, 2), []byte("text\n")))
	f.Add(appendRecord(nil, position, time.Unix(1, 2), make([]byte, positionLen)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var buf [recordHead + maxPayload]byte
		rec, n, err := readRecord(bytes.NewReader(b), &buf)
		if err == nil && !bytes.Equal(appendRecord(nil, rec.stream, rec.at, rec.data), b[:n]) {
			t.Errorf("%x is read as %+v", b[:n], rec)
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	w := NewWriter(b.TempDir(), "a")
	p := make([]byte, 32<<10)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = w.Stream(Stdout).Write(p)
	}
	_ = w.Close()
}

// TestI14_SegmentsAreMadeAnew, readable by their owner alone: what is there by a segment's name already is somebody else's, also behind a
// link or at a pipe. Output goes on where nothing is.
func TestI14_SegmentsAreMadeAnew(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	must(t, os.WriteFile(other, []byte("private"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, segmentName("a", 0)), []byte("private"), 0o600))
	w := NewWriter(dir, "a")
	_, err := w.Stream(Stdout).Write([]byte("one"))
	must(t, errors.Join(err, w.Close()))
	if b, err := os.ReadFile(filepath.Join(dir, segmentName("a", 0))); string(b) != "private" || w.Lost() != 3 {
		t.Errorf("the file that was there: %q, %v; lost %d", b, err, w.Lost())
	}
	w = NewWriter(dir, "b")
	_, err = w.Stream(Stdout).Write([]byte("one"))
	must(t, errors.Join(err, w.Close()))
	path := filepath.Join(dir, segmentName("b", 0))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// The last segment has become a link to one that is just like it.
	same := filepath.Join(t.TempDir(), "same")
	b, err := os.ReadFile(path)
	must(t, errors.Join(err, os.WriteFile(same, b, 0o600), os.Remove(path), os.Symlink(same, path)))
	if again, err := Resume(dir, "b", 3, 0); err == nil {
		_, err = again.Stream(Stdout).Write([]byte("two"))
		must(t, errors.Join(err, again.Close()))
	}
	if now, err := os.ReadFile(same); err != nil || !bytes.Equal(now, b) {
		t.Errorf("it was written to through a link: %q, %v", now, err)
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, segmentName("c", 0)), 0o600))
	r := newReader(dir, "c") // waits for nobody who writes
	if p, err := r.Next(); err == nil {
		t.Errorf("read %q from a pipe", p.Data)
	}
	must(t, r.Close())
	for name, want := range map[string]bool{"a.0.log": true, "a-1.18446744073709551615.log": true, "a.00.log": false, "a.log": false, ".0.log": false, "a.0.logx": false, "a.-1.log": false, "a.0": false} {
		if IsSegment(name) != want {
			t.Errorf("%s is a segment: %t", name, !want)
		}
	}
}

// TestI11_ResumedLogsKeepTheirBound, and count on what was lost before.
func TestI11_ResumedLogsKeepTheirBound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, "a")
	piece := bytes.Repeat([]byte("x"), maxPayload)
	for len := 0; len < 6*segmentBytes; len += maxPayload {
		_, _ = w.Stream(Stdout).Write(piece)
	}
	must(t, w.Close())
	again, err := Resume(dir, "a", w.Total()+5, w.Lost()+5)
	must(t, err)
	if again.Lost() != 5 {
		t.Errorf("%d are lost, want 5", again.Lost())
	}
	for len := 0; len < 6*segmentBytes; len += maxPayload {
		_, _ = again.Stream(Stdout).Write(piece)
	}
	must(t, again.Close())
	if all, err := segments(dir, "a"); err != nil || len(all) > segmentsKept || onDisk(t, dir) > MaxBytes {
		t.Errorf("segments %v, %v", all, err)
	}
}

// TestFullDisksGetNoEmptySegments: where not even a first record fits, its file goes too.
func TestFullDisksGetNoEmptySegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, "a")
	w.opener = func(path string) (*os.File, error) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		return os.OpenFile("/dev/full", os.O_WRONLY, 0)
	}
	_, _ = w.Stream(Stdout).Write([]byte("lost"))
	_ = w.Close()
	if all, err := segments(dir, "a"); err != nil || len(all) != 0 || w.Lost() != 4 {
		t.Errorf("segments %v, %v; %d lost", all, err, w.Lost())
	}
}
