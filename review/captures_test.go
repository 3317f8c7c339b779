package review_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
	"github.com/msb-project/msb/review/pcapgen"
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
		golden(t, filepath.Join(folder, c.Name+".pcapng"), file)
		golden(t, filepath.Join(folder, c.Name+".toml"), []byte(c.File()))
	}
	for _, c := range pcapgen.Recorded() {
		for _, end := range []string{".pcapng", ".toml", ".golden"} {
			known[c.Name+end] = true
		}
		golden(t, filepath.Join(folder, c.Name+".toml"), []byte(c.File()))
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] && !e.IsDir() && e.Name() != "README.md" {
			t.Errorf("%s belongs to no case", e.Name())
		}
	}
}

// frames are a case's capture, generated anew or as it was recorded, and the world's zone.
func frames(t *testing.T, c *pcapgen.Case) (file []byte, zone []string) {
	t.Helper()
	if c.Script == "" {
		return c.Capture()
	}
	file, err := os.ReadFile(filepath.Join(folder, c.Name+".pcapng"))
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
	all := append(pcapgen.All(), pcapgen.Recorded()...)
	if len(all) < least {
		t.Errorf("%d captures, want %d at least", len(all), least)
	}
	for _, c := range all {
		file, err := os.ReadFile(filepath.Join(folder, c.Name+".toml"))
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
			t.Errorf("%s: its story has %d words, want %d at least: %q", c.Name, words, paragraph, story)
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
	var compared, ran atomic.Int64
	before := live()
	t.Cleanup(func() {
		if grown := live() - before; grown > maxGrowth {
			t.Errorf("after all cases %d bytes more are live, want %d at most", grown, maxGrowth)
		}
		if n := compared.Load(); n < minCompared && ran.Load() == int64(len(pcapgen.All())) && !t.Failed() {
			t.Errorf("the gateway and the review both judged %d flows, want %d at least", n, minCompared)
		}
	})
	for _, c := range pcapgen.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ran.Add(1)
			file, zone := frames(t, &c)
			path := filepath.Join(folder, c.Name+".golden")
			judged := verdicts(t, &c, file)
			want := ""
			if !*update {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				want = string(b)
			}
			seen := replay(t, &c, &compared, file, zone, strings.TrimPrefix(want, judged))
			golden(t, path, []byte(judged+seen))
		})
	}
}

// replay returns what the world saw of a case. It waits until that is want, or for a while.
func replay(t *testing.T, c *pcapgen.Case, compared *atomic.Int64, file []byte, zone []string, want string) string {
	t.Helper()
	world := gatewaytest.NewInternet(t)
	world.Record(zone...)
	answerPings(t, world, file)
	guest := startGuest(t, policyOf(t, c), world, macOf(t, file))
	guest.inject(file)
	guest.alive()
	settle(world, want)
	guest.close()
	if !c.Timed {
		compared.Add(guest.compare(reviewed(t, c, file)))
	}
	for _, dialled := range world.Dialled() {
		_, addr, _ := strings.Cut(dialled, " ")
		dst := netip.MustParseAddrPort(addr).Addr()
		if !egress.Classify(dst).Public() && !slices.Contains(c.Opens, dst.String()) {
			t.Errorf("%s was dialled, which is %s", dialled, egress.Classify(dst).Sentence())
		}
	}
	return upstream(world)
}

// upstream is what the world saw, in a form that does not depend on timing.
func upstream(world *gatewaytest.Internet) string {
	var b strings.Builder
	b.WriteString("\nseen upstream:\n")
	lines := world.Dialled()
	for _, name := range world.Asked() {
		lines = append(lines, "dns "+name)
	}
	slices.Sort(lines)
	for _, l := range slices.Compact(lines) {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}

// settle waits until the world saw what is wanted, or, where that is not known, nothing more for a while.
func settle(world *gatewaytest.Internet, want string) {
	limit := 20 * time.Second
	if want == "" {
		limit = 1500 * time.Millisecond
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		if want != "" && upstream(world) == want {
			return
		}
	}
}
