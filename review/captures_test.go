package review_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"

	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

const (
	// minCaptures is how many cases the suite has at least.
	minCaptures = 60
	// minCompared is how many flows must have been judged both offline and on the wire, so that a
	// comparison which compares nothing shows.
	minCompared = 500
	// maxGrowth is what all cases together may leave behind in bytes: caches of the libraries.
	maxGrowth = 32 << 20
)

// live is how many bytes the heap holds that something refers to.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// leavesLittle fails a test that leaves more in memory than caches.
func leavesLittle(t *testing.T) {
	t.Helper()
	before := live()
	t.Cleanup(func() {
		if grown := live() - before; grown > maxGrowth {
			t.Errorf("after all cases %d bytes more are live, want %d at most", grown, maxGrowth)
		}
	})
}

func TestCapturesAreWhatTheGeneratorMakes(t *testing.T) {
	cases := pcapgen.Cases()
	if len(cases) < minCaptures {
		t.Errorf("there are %d captures, want %d at least", len(cases), minCaptures)
	}
	known := map[string]bool{}
	for _, c := range cases {
		file, _ := c.Capture()
		again, _ := c.Capture()
		if !bytes.Equal(file, again) {
			t.Errorf("%s: two runs make two different captures", c.Name)
		}
		for _, end := range []string{".pcapng", ".toml", ".golden"} {
			known[c.Name+end] = true
		}
		golden(t, filepath.Join(directory, c.Name+".pcapng"), file)
		golden(t, filepath.Join(directory, c.Name+".toml"), []byte(c.File()))
	}
	for _, c := range slices.Concat(pcapgen.Recorded(), pcapgen.Spoken()) {
		for _, end := range []string{".pcapng", ".toml", ".golden"} {
			known[c.Name+end] = true
		}
		golden(t, filepath.Join(directory, c.Name+".toml"), []byte(c.File()))
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] && !e.IsDir() && e.Name() != "README.md" {
			t.Errorf("%s belongs to no case", e.Name())
		}
	}
}

// frames are a case's capture, generated again or as it was recorded, and the world's zone.
func frames(t *testing.T, c *pcapgen.Case) (file []byte, zone []string) {
	t.Helper()
	if !c.Stored() {
		return c.Capture()
	}
	file, err := os.ReadFile(filepath.Join(directory, c.Name+".pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	return file, c.Zone
}

// TestEachCaptureHasItsStory: what a reader needs to know stands above the policy, in a paragraph.
func TestEachCaptureHasItsStory(t *testing.T) {
	t.Parallel()
	const (
		least     = 60 // captures
		paragraph = 25 // words
	)
	all := pcapgen.All()
	if len(all) < least {
		t.Errorf("%d captures, want %d at least", len(all), least)
	}
	for _, c := range all {
		file, err := os.ReadFile(filepath.Join(directory, c.Name+".toml"))
		if err != nil {
			t.Fatal(err)
		}
		story := ""
		for line := range strings.Lines(string(file)) {
			text, comment := strings.CutPrefix(line, "#")
			if !comment {
				break
			}
			story += text
		}
		if words := len(strings.Fields(story)); words < paragraph {
			t.Errorf("%s: its description has %d words, want %d at least: %q", c.Name, words, paragraph, story)
		}
	}
}

// policyOf reads the policy that stands beside a capture.
func policyOf(t *testing.T, c *pcapgen.Case) *policies.Policy {
	t.Helper()
	p, err := policies.Parse(c.Name+".toml", []byte(c.File()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func reviewed(t *testing.T, c *pcapgen.Case, file []byte) *review.Report {
	t.Helper()
	r, err := review.Read(t.Context(), c.Name, bytes.NewReader(file), review.Options{Policy: policyOf(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFlowsAreListedFromTheGuest: what the guest sends is the guest's, whatever the flags of its packets
// claim. A flow that is turned round is judged as one to the guest, which no rule is about.
func TestFlowsAreListedFromTheGuest(t *testing.T) {
	t.Parallel()
	for _, c := range pcapgen.All() {
		file, _ := frames(t, &c)
		for f := range reviewed(t, &c, file).Flows() {
			if a := f.Dst.Addr(); f.Verdict != nil && (a == pcapgen.Guest4 || a == pcapgen.Guest6) {
				t.Errorf("%s: a flow from %v is judged as one to the guest, %v", c.Name, f.Src, f.Dst)
			}
		}
	}
}

// verdicts is the review of a case as its golden file has it.
func verdicts(t *testing.T, c *pcapgen.Case, file []byte) string {
	t.Helper()
	r := reviewed(t, c, file)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range r.Rows(false) {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	return b.String() + strings.Join(r.Summary(), "\n") + "\n"
}

// TestI5_TheAttackSuite judges each capture offline, then puts the guest's frames through a real gateway
// whose internet is this process: what was dialled and asked is seen from outside, and must be what the
// golden file allows. After each the gateway must still serve.
func TestI5_TheAttackSuite(t *testing.T) {
	ofEachCase(t, func(t *testing.T, c *pcapgen.Case, file []byte, zone []string) (compared int64) {
		path := filepath.Join(directory, c.Name+".golden")
		judged := verdicts(t, c, file)
		want := ""
		if !*update {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want = string(b)
		}
		seen, compared := replay(t, c, file, zone, strings.TrimPrefix(want, judged))
		golden(t, path, []byte(judged+seen))
		return compared
	})
}

// ofEachCase runs a test of its own for each case. run tells how many verdicts it compared; all together must
// be enough, and leave little in memory.
func ofEachCase(t *testing.T, run func(t *testing.T, c *pcapgen.Case, file []byte, zone []string) (compared int64)) {
	t.Helper()
	leavesLittle(t)
	var compared, ran atomic.Int64
	t.Cleanup(func() {
		if n := compared.Load(); n < minCompared && ran.Load() == int64(len(pcapgen.All())) && !t.Failed() {
			t.Errorf("the gateway and the review both judged %d flows, want %d at least", n, minCompared)
		}
	})
	for _, c := range pcapgen.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ran.Add(1)
			file, zone := frames(t, &c)
			compared.Add(run(t, &c, file, zone))
		})
	}
}

// replay returns what the world saw of a case, and how many verdicts were compared. It waits until the
// former is want, or for a while.
func replay(t *testing.T, c *pcapgen.Case, file []byte, zone []string, want string) (seen string, compared int64) {
	t.Helper()
	guest := startGuest(t, c, file, zone)
	guest.inject(file)
	guest.alive()
	settle(guest.world.Internet, want)
	guest.close()
	if !c.Timed {
		r := reviewed(t, c, file)
		guest.compareGuarded(r)
		compared = compare(t, guest.world.Audit, r.Flows()) + compareRequests(t, guest.world.Audit, r)
	}
	dialsAreLawful(t, c, guest.world.Internet)
	return upstream(guest.world.Internet), compared
}
