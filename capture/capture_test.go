package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is where tests write; close tells that the writer closed it.
type buffer struct {
	bytes.Buffer
	closed bool
}

func (b *buffer) Close() error { b.closed = true; return nil }

// frame is an Ethernet frame of n bytes that says its number.
func frame(i, n int) []byte {
	f := make([]byte, n)
	copy(f[12:], []byte{8, 0})
	copy(f[14:], fmt.Sprint(i))
	return f
}

// record is a Record that outlives Next.
func record(r *Record) Record {
	c := *r
	c.Frame = bytes.Clone(r.Frame)
	c.Keys = bytes.Clone(r.Keys)
	return c
}

// readAll returns what is readable, and the error that ended it (nil for the end of the file).
func readAll(t testing.TB, b []byte) ([]Record, error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var all []Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, r.Foreign()
		}
		if err != nil {
			return all, err
		}
		all = append(all, record(rec))
	}
}

func ofKind(all []Record, kind RecordKind) []Record {
	var some []Record
	for _, r := range all {
		if r.Kind == kind {
			some = append(some, r)
		}
	}
	return some
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	var out buffer
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	w := NewWriter(&out, Options{Comment: "sandbox a", now: func() time.Time { return at }})
	w.Names("api.example.com", []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("2606:2800::1")})
	w.Names("api.example.com", []netip.Addr{netip.MustParseAddr("93.184.215.14")})
	w.Names("two\x00names.example.com", []netip.Addr{netip.MustParseAddr("93.184.215.15")})
	w.TLSKeys([]byte("CLIENT_RANDOM 00 11\n"))
	ticket := w.Packet(FromGuest, frame(1, 61), "")
	w.Packet(ToGuest, frame(2, 1500), "now")
	if !w.Annotate(ticket, "later") || !w.Annotate(ticket, "and again") {
		t.Error("a packet that still waits can't be annotated")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !out.closed {
		t.Error("the file was not closed")
	}
	if w.Annotate(ticket, "too late") {
		t.Error("a closed capture took a comment")
	}
	all, err := readAll(t, out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	packets := ofKind(all, PacketRecord)
	if len(packets) != 2 {
		t.Fatalf("got %d packets: %+v", len(packets), all)
	}
	p := packets[0]
	if p.Time != at.UnixNano() || p.Direction != FromGuest || p.Length != 61 || !bytes.Equal(p.Frame, frame(1, 61)) {
		t.Errorf("got %+v", p)
	}
	if got := strings.Join(p.Comments, "|"); got != "later|and again" {
		t.Errorf("comments %q", got)
	}
	if p := packets[1]; p.Direction != ToGuest || strings.Join(p.Comments, "") != "now" {
		t.Errorf("got %+v", p)
	}
	names := ofKind(all, NameRecord)
	if len(names) != 2 || names[0].Names[0] != "api.example.com" || names[1].Addr.String() != "2606:2800::1" {
		t.Errorf("names %+v", names)
	}
	if keys := ofKind(all, KeysRecord); len(keys) != 1 || string(keys[0].Keys) != "CLIENT_RANDOM 00 11\n" {
		t.Errorf("keys %+v", keys)
	}
}

func TestOtherReadersReadCaptures(t *testing.T) {
	t.Parallel()
	var out buffer
	w := NewWriter(&out, Options{SnapLen: 100})
	w.Names("n.example", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	for i := range 10 {
		w.Packet(Direction(i%2), frame(i, 60+i*20), strings.Repeat("x", i))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(out.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if ci.Length != 60+i*20 || len(data) != min(100, 60+i*20) {
			t.Errorf("packet %d: %d of %d bytes", i, len(data), ci.Length)
		}
		if i > 0 && (len(opts.Comments) != 1 || opts.Comments[0] != strings.Repeat("x", i)) {
			t.Errorf("packet %d: comments %q", i, opts.Comments)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last packet: %v", err)
	}
}

// slow is a disk that takes nothing until it is told to.
type slow struct {
	bytes.Buffer
	go_ chan struct{}
}

func (s *slow) Write(p []byte) (int, error) { <-s.go_; return s.Buffer.Write(p) }

func TestSlowDisksReportLostPackets(t *testing.T) {
	t.Parallel()
	out := &slow{go_: make(chan struct{})}
	w := NewWriter(out, Options{Queue: 100 << 10})
	const packets = 5000
	for i := range packets { // 5 MB: Packet returns though nothing can be written
		w.Packet(FromGuest, frame(i, 1000), "")
	}
	taken, lost := w.Stats()
	if lost == 0 || taken+lost != packets {
		t.Fatalf("taken %d, lost %d", taken, lost)
	}
	close(out.go_)
	for deadline := time.Now().Add(60 * time.Second); ; { // a packet gets in once there is room again
		if w.Packet(FromGuest, frame(0, 1000), "") != (Ticket{}) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the queue stays full")
		}
	}
	_, lost = w.Stats()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if r.Lost() != lost {
		t.Errorf("the file says that %d were lost, want %d", r.Lost(), lost)
	}
}

func TestCommentsReachUnwrittenPackets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		w := NewWriter(&out, Options{})
		first := w.Packet(FromGuest, frame(1, 60), "")
		time.Sleep(batchTime - time.Millisecond)
		if !w.Annotate(first, "in time") {
			t.Error("the comment came before the batch was written, and was refused")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if w.Annotate(first, "late") {
			t.Error("the packet is written; its comment was taken all the same")
		}
		second := w.Packet(FromGuest, frame(2, 60), "")
		if !w.Annotate(second, "other batch") {
			t.Error("the next batch takes no comment")
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		all, err := readAll(t, out.Bytes())
		if err != nil || len(all) != 2 {
			t.Fatalf("%v, %d records", err, len(all))
		}
		for i, want := range []string{"in time", "other batch"} {
			if got := strings.Join(all[i].Comments, "|"); got != want {
				t.Errorf("packet %d: comments %q, want %q", i, got, want)
			}
		}
	})
}

// TestI11_CommentsThatWaitAreBounded: the disk stands still, and a guest makes requests without end.
func TestI11_CommentsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in which no time passes, so that nothing is written
		var out buffer
		w := NewWriter(&out, Options{})
		packet := w.Packet(FromGuest, frame(1, 60), "")
		text, taken := strings.Repeat("x", 1000), 0
		for w.Annotate(packet, text) && taken <= maxNotes {
			taken += len(text)
		}
		if taken > maxNotes {
			t.Errorf("%d bytes of comments wait; want at most %d", taken, maxNotes)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRotatedCapturesStandAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	w, err := Create(path, Options{MaxBytes: 20 << 10, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	w.Names("kept.example", []netip.Addr{netip.MustParseAddr("192.0.2.7")})
	const packets = 60
	for i := range packets {
		w.Packet(FromGuest, frame(i, 1000), "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".3"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a third old file: %v", err)
	}
	next := ""
	for _, p := range []string{path + ".2", path + ".1", path} {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 || info.Size() > 21<<10 {
			t.Errorf("%s: mode %v, %d bytes", p, info.Mode(), info.Size())
		}
		all, err := readAll(t, b)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if names := ofKind(all, NameRecord); len(names) == 0 || names[0].Names[0] != "kept.example" {
			t.Errorf("%s does not repeat the names: %+v", p, names)
		}
		for _, r := range ofKind(all, PacketRecord) {
			number := strings.TrimRight(string(r.Frame[14:24]), "\x00")
			if next != "" && number != next {
				t.Fatalf("%s: packet %s, want %s", p, number, next)
			}
			var n int
			_, _ = fmt.Sscan(number, &n)
			next = fmt.Sprint(n + 1)
		}
	}
	if next != fmt.Sprint(packets) {
		t.Errorf("the last packet is the one before %s, want %d", next, packets)
	}
}

func TestAgeRotates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	path := filepath.Join(t.TempDir(), "a.pcapng")
	o := Options{MaxAge: time.Minute, now: func() time.Time { return now }}.withDefaults()
	f, err := createRotating(path, &o)
	if err != nil {
		t.Fatal(err)
	}
	none := func() []byte { return nil }
	for range 2 {
		if err := f.write(packetBlock(nil, 1, FromGuest, [][]byte{frame(1, 60)}, 60, "", 0), none, true); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Minute)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + ".1"} {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := readAll(t, b); err != nil || len(all) != 1 {
			t.Errorf("%s: %d records, %v", p, len(all), err)
		}
	}
}

// full is a disk that is full for a while.
type full struct {
	bytes.Buffer
	mu    sync.Mutex
	until int
}

func (f *full) write(b []byte, _ func() []byte, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until--; f.until >= 0 {
		return errors.New("no space left on device")
	}
	_, err := f.Write(b)
	return err
}

func (f *full) close() error { return nil }

func TestFullDisksAreReportedAndSurvived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &full{until: 1}
		o := Options{}.withDefaults()
		out.Write(preamble(&o))
		w := newWriter(out, o)
		w.Packet(FromGuest, frame(1, 60), "")
		time.Sleep(2 * batchTime)
		synctest.Wait()
		w.Packet(FromGuest, frame(2, 60), "")
		if err := w.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("Close: %v", err)
		}
		if err := w.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		r, err := NewReader(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if err != nil || rec.Lost != 1 || !bytes.Equal(rec.Frame, frame(2, 60)) {
			t.Errorf("got %+v, %v; want the second packet, with one lost before it", rec, err)
		}
	})
}

func TestVerdictsSurviveTheirComment(t *testing.T) {
	t.Parallel()
	for _, v := range []Verdict{
		{Kind: "flow", Flow: 7, Action: "deny", Reason: "no_rule"},
		{Kind: "flow", Flow: 1, Action: "allow", Rule: "lab database", Reason: "rule", Name: "x.example", Message: "x.example: an allow rule covers it [rule lab database]"},
		{Kind: "dns", Action: "deny", Name: "evil\n\" name: = ", WouldDeny: true, Message: ": odd"},
	} {
		got, ok := ParseVerdict(v.String())
		if !ok || got != v {
			t.Errorf("%q: got %+v, %v; want %+v", v.String(), got, ok, v)
		}
	}
	for _, s := range []string{"", "msb", "msb: dropped by the frame guard: arp", "a person's note", "msb flow", "msb flow=x", "msb other=1", `msb flow=1 rule="open`} {
		if v, ok := ParseVerdict(s); ok {
			t.Errorf("%q was taken for %+v", s, v)
		}
	}
	if v, ok := ParseVerdict("msb flow=3 action=allow later=key"); !ok || v.Action != "allow" {
		t.Errorf("a key of a later version: %+v, %v", v, ok)
	}
}
