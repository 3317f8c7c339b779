package progressbar

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/msb-project/msb/image"
)

const (
	// redrawEvery is the pace of a terminal's line.
	redrawEvery = 100 * time.Millisecond
	// rateWindow smooths the rate.
	rateWindow = 3 * time.Second
	// maxRef keeps the line on one row of 80 columns.
	maxRef = 30
)

// Style is where the output goes.
type Style int

// The styles.
const (
	// Quiet shows nothing.
	Quiet Style = iota
	// Plain prints whole lines, for logs and pipes.
	Plain
	// Terminal redraws one line.
	Terminal
)

// Renderer writes progress to w. It is used for one Resolve.
type Renderer struct {
	w     io.Writer
	style Style
	now   func() time.Time

	phase    image.Phase
	layers   int
	drawn    time.Time
	started  time.Time
	marks    []mark
	anything bool
}

// mark is how many bytes there were at a time.
type mark struct {
	at    time.Time
	bytes int64
}

var _ image.Progress = (*Renderer)(nil)

// New renders to w in a style. A caller finds out whether w is a terminal.
func New(w io.Writer, style Style) *Renderer {
	return &Renderer{w: w, style: style, now: time.Now}
}

// Report implements image.Progress. Errors of w are dropped: progress is no result.
func (r *Renderer) Report(e image.Event) {
	if r.style == Quiet {
		return
	}
	now := r.now()
	changed := e.Phase != r.phase
	if changed {
		r.phase, r.marks = e.Phase, nil
		if r.started.IsZero() {
			r.started = now
		}
	}
	r.mark(now, e.Done)
	if r.style == Plain {
		r.plain(e, changed)
		return
	}
	if changed || now.Sub(r.drawn) >= redrawEvery {
		r.drawn = now
		r.redraw(e)
	}
}

func (r *Renderer) mark(now time.Time, bytes int64) {
	r.marks = append(r.marks, mark{now, bytes})
	for len(r.marks) > 2 && now.Sub(r.marks[0].at) > rateWindow {
		r.marks = r.marks[1:]
	}
}

// rate is in bytes a second over the window; 0 while unknown.
func (r *Renderer) rate() int64 {
	first, last := r.marks[0], r.marks[len(r.marks)-1]
	span := last.at.Sub(first.at)
	if span < redrawEvery {
		return 0
	}
	return int64(float64(last.bytes-first.bytes) / span.Seconds())
}

// plain prints a line when a phase starts and when a layer is done.
func (r *Renderer) plain(e image.Event, changed bool) {
	layer := e.LayersDone > r.layers
	r.layers = e.LayersDone
	if e.Phase == image.PhaseDone && e.Cached && !r.anything {
		return // nothing was done: nothing to say
	}
	if !changed && !layer {
		return
	}
	if e.Phase == image.PhaseResolving {
		return // said with the next phase, if there is one
	}
	r.anything = true
	_, _ = fmt.Fprintln(r.w, r.line(e))
}

func (r *Renderer) redraw(e image.Event) {
	const clearLine = "\r\x1b[K"
	switch {
	case e.Phase == image.PhaseDone && (e.Cached || !r.anything), e.Phase == image.PhaseFailed:
		_, _ = io.WriteString(r.w, clearLine)
	case e.Phase == image.PhaseDone:
		_, _ = fmt.Fprintf(r.w, "%s%s\n", clearLine, r.line(e))
	default:
		r.anything = r.anything || e.Phase == image.PhaseFetching || e.Phase == image.PhaseWriting
		_, _ = fmt.Fprintf(r.w, "%s%s", clearLine, r.line(e))
	}
}

// line is one event in words.
func (r *Renderer) line(e image.Event) string {
	ref := shorten(e.Ref)
	switch e.Phase {
	case image.PhaseResolving:
		return ref + ": looking it up"
	case image.PhaseWaiting:
		return ref + ": waiting for another msb that pulls it"
	case image.PhaseFetching:
		return fmt.Sprintf("%s: %d/%d layers, %s", ref, e.LayersDone, e.Layers, r.amount(e))
	case image.PhaseWriting:
		return fmt.Sprintf("%s: writing the disk, %s", ref, r.amount(e))
	case image.PhaseDone:
		return fmt.Sprintf("%s: ready after %s", ref, r.now().Sub(r.started).Round(100*time.Millisecond))
	case image.PhaseFailed:
		return ref + ": failed"
	default:
		return ref
	}
}

func (r *Renderer) amount(e image.Event) string {
	s := Bytes(e.Done)
	if e.Total > 0 {
		s += " of " + Bytes(e.Total)
	}
	if rate := r.rate(); rate > 0 {
		s += ", " + Bytes(rate) + "/s"
	}
	return s
}

// Bytes writes a size with a decimal unit, "12.3 MB".
func Bytes(n int64) string {
	const unit = 1000
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, units := float64(n)/unit, "kMGTPE"
	for v >= 999.95 && len(units) > 1 {
		v, units = v/unit, units[1:]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[:1] + "B"
}

// shorten keeps the end of a reference, where the name and the tag are, and
// quotes what a terminal would obey.
func shorten(ref string) string {
	quoted := strconv.Quote(ref)
	ref = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(ref) > maxRef {
		ref = "…" + ref[len(ref)-maxRef:]
	}
	return ref
}
