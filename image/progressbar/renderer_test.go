package progressbar

import (
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
)

// play renders a pull of two layers, a second between events.
func play(style Style, events ...image.Event) string {
	var out strings.Builder
	r := New(&out, style)
	at := time.Unix(1000, 0)
	r.now = func() time.Time { return at }
	for _, e := range events {
		e.Ref = "registry.test/team/app:v1"
		r.Report(e)
		at = at.Add(time.Second)
	}
	return out.String()
}

var pull = []image.Event{
	{Phase: image.PhaseResolving},
	{Phase: image.PhaseFetching, Layers: 2, Total: 4_000_000},
	{Phase: image.PhaseFetching, Layers: 2, Done: 1_500_000, Total: 4_000_000},
	{Phase: image.PhaseFetching, Layers: 2, LayersDone: 1, Done: 3_000_000, Total: 4_000_000},
	{Phase: image.PhaseFetching, Layers: 2, LayersDone: 2, Done: 4_000_000, Total: 4_000_000},
	{Phase: image.PhaseWriting, Layers: 2, LayersDone: 2, Total: 9_000_000},
	{Phase: image.PhaseDone, Layers: 2, LayersDone: 2},
}

func TestPlainPrintsWholeLines(t *testing.T) {
	t.Parallel()
	want := `registry.test/team/app:v1: 0/2 layers, 0 B of 4.0 MB
registry.test/team/app:v1: 1/2 layers, 3.0 MB of 4.0 MB, 1.5 MB/s
registry.test/team/app:v1: 2/2 layers, 4.0 MB of 4.0 MB, 1.3 MB/s
registry.test/team/app:v1: writing the disk, 0 B of 9.0 MB
registry.test/team/app:v1: ready after 6s
`
	if got := play(Plain, pull...); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTerminalRedrawsOneLine(t *testing.T) {
	t.Parallel()
	got := play(Terminal, pull...)
	if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "ready after 6s\n") {
		t.Errorf("got %q, want one line that stays", got)
	}
	if !strings.Contains(got, "\r\x1b[Kregistry.test/team/app:v1: 0/2 layers, 1.5 MB of 4.0 MB, 1.5 MB/s") {
		t.Errorf("got %q, want bytes, rate and layers", got)
	}
}

func TestQuietAndCachedShowNothing(t *testing.T) {
	t.Parallel()
	if got := play(Quiet, pull...); got != "" {
		t.Errorf("quiet shows %q", got)
	}
	cached := []image.Event{{Phase: image.PhaseResolving}, {Phase: image.PhaseDone, Cached: true}}
	if got := play(Plain, cached...); got != "" {
		t.Errorf("a cached image shows %q", got)
	}
	if got := play(Terminal, cached...); strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("a cached image leaves %q", got)
	}
}

func TestReferencesCannotSteerATerminal(t *testing.T) {
	t.Parallel()
	if got := shorten("a\x1b]52;c;x\a\n"); strings.ContainsAny(got, "\x1b\a\n") {
		t.Errorf("%q", got)
	}
	if got := shorten(strings.Repeat("x", 100)); len([]rune(got)) > maxRef+1 {
		t.Errorf("%q is long", got)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_951: "1.0 MB", 12_345_678: "12.3 MB", 1 << 40: "1.1 TB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
