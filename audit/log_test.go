package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// gate is a disk that takes nothing until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{} // gets one value when the first write waits
	once    sync.Once
	buf     bytes.Buffer
}

func newGate() *gate { return &gate{open: make(chan struct{}), entered: make(chan struct{}, 1)} }

func (g *gate) Write(b []byte) (int, error) {
	g.once.Do(func() { g.entered <- struct{}{} })
	<-g.open
	return g.buf.Write(b)
}

func decode(t *testing.T, lines []byte) []Event {
	t.Helper()
	var out []Event
	for line := range bytes.Lines(lines) {
		var ev Event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, ev)
	}
	return out
}

func TestI11_SlowDisksNeverBlock(t *testing.T) {
	disk := newGate()
	l := NewLog(disk, Options{Queue: 10})
	l.Emit(Event{Kind: FlowOpen, Flow: 1})
	<-disk.entered // the writer hangs in its write
	for i := range 100 {
		l.Emit(Event{Kind: FlowOpen, Flow: uint64(i + 2)}) // would deadlock the test if it blocked
	}
	l.Emit(Event{Kind: FlowOpen, Count: 200}) // the merged line of a flood
	if got := l.Dropped(); got != 290 {
		t.Errorf("%d dropped, want 90 of 100 with a queue of 10, and the flood's 200", got)
	}
	close(disk.open)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	events := decode(t, disk.buf.Bytes())
	var flows int
	var told uint64
	for _, ev := range events {
		switch ev.Kind {
		case FlowOpen:
			flows++
		case AuditDropped:
			told += ev.Count
		default:
			t.Errorf("unexpected %+v", ev)
		}
	}
	if flows != 11 || told != 290 {
		t.Errorf("file has %d flows and counts %d lost, want 11 and 290", flows, told)
	}
	l.Emit(Event{Kind: FlowOpen, Count: 5})
	if got := l.Dropped(); got != 295 {
		t.Errorf("%d dropped with a flood of 5 that came after the end, want 295", got)
	}
}

func TestI11_ListsOfAnEventAreBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewLog(&out, Options{})
	many := slices.Repeat([]string{"192.0.2.1"}, maxList+1)
	l.Emit(Event{Kind: DNSQuery, Names: many, DNS: &DNSDetail{Answers: many}})
	l.Emit(Event{Kind: DNSQuery, DNS: &DNSDetail{Removed: many[:maxList]}})
	l.Emit(Event{Kind: DNSQuery, DNS: &DNSDetail{Removed: many}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i, ev := range decode(t, out.Bytes()) {
		if n := max(len(ev.DNS.Answers), len(ev.DNS.Removed)); n != maxList || len(ev.Names) > maxList {
			t.Errorf("event %d: %d addresses, %d names, want %d at most", i, n, len(ev.Names), maxList)
		}
	}
}

func TestCloseWritesEverythingQueued(t *testing.T) {
	var buf bytes.Buffer
	l := NewLog(&buf, Options{Sandbox: "box"})
	l.now = func() time.Time { return noon }
	for i := range 1000 {
		l.Emit(Event{Kind: FlowOpen, Flow: uint64(i + 1)})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	events := decode(t, buf.Bytes())
	if len(events) != 1000 || events[999].Flow != 1000 || events[0].Sandbox != "box" || !events[0].Time.Equal(noon) {
		t.Errorf("%d events, last %+v", len(events), events[len(events)-1])
	}
	l.Emit(Event{Kind: FlowOpen}) // after Close: counted, no panic
	if l.Dropped() != 1 {
		t.Errorf("dropped %d, want 1", l.Dropped())
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}
}

type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n++; f.n == 1 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestWriteErrorsDontEndTheLog(t *testing.T) {
	w := &failing{}
	l := NewLog(w, Options{})
	l.Emit(Event{Kind: FlowOpen})
	for l.Err() == nil {
		l.Emit(Event{Kind: FlowClose})
	}
	l.Emit(Event{Kind: FlowClose})
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Close: %v", err)
	}
	if w.n < 2 || l.Dropped() == 0 {
		t.Errorf("%d writes, %d dropped; want another write after the error and its lines counted", w.n, l.Dropped())
	}
}

// A line that a killed process left unfinished spoils no other.
func TestI12_AnUnfinishedLineIsEnded(t *testing.T) {
	for _, before := range []string{"{\"torn\":", "{\"torn\":\n", ""} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLog(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.Emit(Event{Time: noon, Kind: FlowOpen, Flow: 7})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rest, found := bytes.CutPrefix(data, []byte(strings.TrimSuffix(before, "\n")+strings.Repeat("\n", min(len(before), 1))))
		if !found || !bytes.HasPrefix(rest, []byte("{")) || bytes.Count(rest, []byte("\n")) != 1 {
			t.Errorf("after %q the file is %q", before, data)
		}
	}
}

func TestRotationKeepsLinesAndFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"torn":`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLog(path, Options{MaxBytes: 4096, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		l.Emit(Event{Time: noon, Kind: FlowOpen, Flow: uint64(i + 1), Message: strings.Repeat("m", 60)})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for _, name := range []string{path + ".2", path + ".1", path} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.TrimPrefix(data, []byte("{\"torn\":\n"))
		for _, ev := range decode(t, data) {
			if ev.Kind == AuditRotated {
				continue
			}
			if last != 0 && ev.Flow != last+1 {
				t.Errorf("%s: flow %d after %d", name, ev.Flow, last)
			}
			last = ev.Flow
		}
	}
	if last != 300 {
		t.Errorf("last flow %d, want 300", last)
	}
	if _, err := os.Stat(path + ".3"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a third old file is kept: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestI12_OpenLogNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "audit.jsonl")
	if _, err := OpenLog(path, Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want not-exist and the path", err)
	}
}

func TestConcurrentEmitAndClose(t *testing.T) {
	l := NewLog(&bytes.Buffer{}, Options{Queue: 16})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				l.Emit(Event{Kind: FlowOpen})
			}
		})
	}
	_ = l.Close()
	wg.Wait()
}

// fullEvent has every field set.
func fullEvent() Event {
	return Event{
		Time: noon, Sandbox: "box", Labels: map[string]string{"pod": "web"}, Kind: HTTPRequest, Flow: 7, Proto: "tcp", SrcPort: 40000,
		Dst: netip.MustParseAddr("140.82.112.5"), Port: 443, Client: netip.MustParseAddrPort("127.0.0.1:50000"), Peer: "web", Proxy: netip.MustParseAddrPort("192.168.127.1:3128"), Names: []string{"api.github.com"},
		Target: "127.0.0.1:5000", SNI: "api.github.com", Host: "api.github.com", Scheme: "https", Method: "GET", Path: "/repos/acme", Overrides: "DELETE", Status: 200,
		Action: "inspect", WouldDeny: true, Rule: "github", Reason: "rule", Class: "public", By: "alice by msb requests", Message: "an allow rule covers it",
		BytesUp: 10, BytesDown: 20, Duration: 1500 * time.Millisecond, Count: 3,
		DNS: &DNSDetail{
			Name: "api.github.com", Type: "A", Outcome: "NOERROR", Answers: []string{"140.82.112.5"},
			Removed: []string{"10.0.0.1"}, Upstream: "udp://192.0.2.53", Cached: true, Latency: time.Millisecond,
		},
		Secret: "GITHUB_TOKEN", Place: "header:Authorization", Exec: 7, Job: "main", Program: "sh", ExitCode: new(3), Verb: "exec", Child: "web-1a2b3c",
	}
}

func TestJSONIsStable(t *testing.T) {
	full := fullEvent()
	for name, v := range map[string]reflect.Value{"Event": reflect.ValueOf(full), "DNSDetail": reflect.ValueOf(*full.DNS)} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s isn't set in fullEvent: a new field needs its place in the golden file", name, v.Type().Field(i).Name)
			}
		}
	}
	var got []byte
	for _, ev := range []Event{full, {Time: noon, Kind: SandboxStart}} {
		line, err := newEncoder().appendLine(nil, ev)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line...)
	}
	golden := filepath.Join("testdata", "events.jsonl")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("keys of the log changed (-update rewrites the file, but readers depend on it):\ngot  %s\nwant %s", got, want)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Event](), reflect.TypeFor[DNSDetail]()} {
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !bytes.Contains(doc, []byte("| `"+key+"`")) && !bytes.Contains(doc, []byte("| `dns."+key+"`")) {
				t.Errorf("docs/audit.md has no row for %q", key)
			}
		}
	}
	for _, k := range []Kind{FlowOpen, FlowClose, DNSQuery, DNSRebinding, HTTPRequest, SecretSwap, SecretViolation, PolicyReload, Limit, LinkDrop, SandboxStart, SandboxStop, AuditDropped, AuditRotated} {
		if !bytes.Contains(doc, []byte("| `"+string(k)+"`")) {
			t.Errorf("docs/audit.md has no row for kind %q", k)
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	l := NewLog(nothing{}, Options{})
	defer func() { _ = l.Close() }()
	ev := fullEvent()
	b.ReportAllocs()
	for b.Loop() {
		l.Emit(ev)
	}
}

type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }
