package review

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/msb-project/msb/audit"
)

// columns is how many cells a row of the table has.
const columns = 10

// maxPathCell bounds a path in the table, in characters.
const maxPathCell = 60

// Rows is the report as a table: a head, the judged names, then a row for each flow that is judged, with its
// requests below it. Text that a guest chose is made harmless for a terminal.
func (r *Report) Rows(onlyChanged bool) [][]string {
	var rows [][]string
	for row := range r.rows(onlyChanged) {
		rows = append(rows, slices.Clone(row[:]))
	}
	return rows
}

// WriteTable writes Rows in aligned columns, row by row: a million of them need not be in memory.
func (r *Report) WriteTable(w io.Writer, onlyChanged bool) error {
	var widths [columns]int
	for row := range r.rows(onlyChanged) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	const gap = 2
	var line []byte
	out := bufio.NewWriterSize(w, 64<<10)
	for row := range r.rows(onlyChanged) {
		line = line[:0]
		for i, cell := range row {
			line = append(line, cell...)
			for n := utf8.RuneCountInString(cell); i < columns-1 && n < widths[i]+gap; n++ {
				line = append(line, ' ')
			}
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

// rows gives the rows of the table. A row is good until the next one.
func (r *Report) rows(onlyChanged bool) iter.Seq[*[columns]string] {
	return func(yield func(*[columns]string) bool) {
		row := [columns]string{"flow", "from", "to", "names", "up", "down", "recorded", "verdict", "rule", "reason"}
		if r.compared {
			row[6] = "against"
		}
		if !yield(&row) {
			return
		}
		for i := range r.Lookups {
			l := &r.Lookups[i]
			if onlyChanged && !l.Changed() {
				continue
			}
			row = [columns]string{
				"dns", strconv.FormatInt(l.Count, 10) + "x", dash(l.Type), audit.Printable(l.Name), "-", "-",
				action(r.other(l.Against, l.Recorded)), action(&l.Verdict), dash(l.Verdict.Rule), dash(l.Verdict.Reason),
			}
			if !yield(&row) {
				return
			}
		}
		requests := r.Requests
		for f := range r.Flows() {
			if f.Verdict != nil && (!onlyChanged || f.Changed()) {
				row = [columns]string{
					strconv.Itoa(f.ID), f.Proto + "/" + strconv.Itoa(int(f.Src.Port())), f.target(), dash(audit.Printable(f.known())),
					size(f.BytesUp), size(f.BytesDown),
					action(r.other(f.Against, f.Recorded)), action(f.Verdict), dash(f.Verdict.Rule), dash(f.Verdict.Reason),
				}
				if !yield(&row) {
					return
				}
			}
			for ; len(requests) > 0 && requests[0].Flow == f.ID; requests = requests[1:] {
				q := &requests[0]
				if onlyChanged && !q.Changed() {
					continue
				}
				row = [columns]string{
					strconv.Itoa(f.ID), dash(audit.Printable(q.Method)), q.target(), dash(audit.Printable(q.Host)), "-", "-",
					action(r.other(q.Against, q.Recorded)), action(&q.Verdict), dash(q.Verdict.Rule), dash(q.Verdict.Reason),
				}
				if !yield(&row) {
					return
				}
			}
		}
	}
}

// fullPath is the request's path, or what stands for it.
func (q *Request) fullPath() string {
	switch {
	case q.Unfollowed:
		return "(not followed further)"
	case q.Path == "" && q.Method == "":
		return "(unreadable)"
	case q.Path == "":
		return "(a long path)"
	}
	return q.Path
}

// target is the request's path as the table shows it.
func (q *Request) target() string {
	path := []rune(audit.Printable(q.fullPath()))
	if len(path) <= maxPathCell {
		return string(path)
	}
	return string(path[:maxPathCell-1]) + "…"
}

// other is the verdict that a verdict is compared with.
func (r *Report) other(against, recorded *Verdict) *Verdict {
	if r.compared {
		return against
	}
	return recorded
}

func (f *Flow) target() string {
	if f.ProxyTarget != "" {
		return f.ProxyTarget + " by proxy"
	}
	if f.Dst.Port() == 0 {
		return f.Dst.Addr().String()
	}
	return f.Dst.String()
}

// known is the name that the client said, else the names that are pinned.
func (f *Flow) known() string {
	if f.Name != "" {
		return f.Name
	}
	return strings.Join(f.Names, " ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func action(v *Verdict) string {
	switch {
	case v == nil:
		return "-"
	case v.WouldDeny:
		return v.Action + "*"
	}
	return v.Action
}

// size writes a number of bytes for people.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return strconv.FormatInt(n, 10)
	}
	v, suffix := float64(n)/unit, "k"
	for _, next := range []string{"M", "G", "T"} {
		if v < unit {
			break
		}
		v, suffix = v/unit, next
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + suffix
}

// Summary is the report in a few lines.
func (r *Report) Summary() []string {
	var allowed, inspected, denied, undecided int
	judged, changes := 0, 0
	for f := range r.Flows() {
		if f.Verdict == nil {
			continue
		}
		judged++
		switch f.Verdict.Action {
		case "allow":
			allowed++
		case "inspect":
			inspected++
		case "deny":
			denied++
		case Undecided:
			undecided++
		}
		if f.Changed() {
			changes++
		}
	}
	for i := range r.Lookups {
		if r.Lookups[i].Changed() {
			changes++
		}
	}
	var refused, unclear int
	for i := range r.Requests {
		q := &r.Requests[i]
		switch q.Verdict.Action {
		case "deny":
			refused++
		case Undecided:
			unclear++
		}
		if q.Changed() {
			changes++
		}
	}
	changes += r.beyond[IsChanged]
	lines := []string{
		fmt.Sprintf("%d packets, %s bytes; %d flows, %d judged: %d allowed, %d inspected, %d denied, %d undecided; %d names",
			r.Packets, size(r.Bytes), r.Len(), judged, allowed, inspected, denied, undecided, len(r.Lookups)),
	}
	if n := len(r.Requests); n > 0 {
		lines = append(lines, fmt.Sprintf("requests: %d; %d allowed, %d denied, %d undecided", n, n-refused-unclear, refused, unclear))
	}
	if r.MoreRequests > 0 {
		lines = append(lines, fmt.Sprintf("requests that are not listed: %d; %d denied, %d undecided", r.MoreRequests, r.beyond[Denied], r.beyond[IsUndecided]))
	}
	if r.LostVerdicts > 0 {
		lines = append(lines, fmt.Sprintf("%d verdicts are missing: the capture could not hold them all when it was made", r.LostVerdicts))
	}
	if changes > 0 {
		verb := "verdicts differ"
		if changes == 1 {
			verb = "verdict differs"
		}
		lines = append(lines, fmt.Sprintf("%d %s from %s", changes, verb, map[bool]string{true: "the other policy's", false: "what was recorded"}[r.compared]))
	}
	if n := r.guardDrops(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d frames were thrown away by the frame guard when this was recorded", n))
	}
	if text := r.guardedText(); text != "" {
		lines = append(lines, text)
	}
	if r.Lost > 0 {
		lines = append(lines, fmt.Sprintf("%d packets are missing: the disk was too slow for the capture", r.Lost))
	}
	for _, d := range r.Damage {
		lines = append(lines, "damaged: "+audit.Printable(d.String()))
	}
	return lines
}

func (r *Report) guardDrops() (n int64) {
	for reason, c := range r.Dropped {
		if reason != ordinary {
			n += c
		}
	}
	return n
}
