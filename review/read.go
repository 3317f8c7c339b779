package review

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/lazyregexp"
)

// Run reads the captures and judges what is in them. What is wrong with a capture ends that, not the
// review: what was readable is in the report, and so is the Damage.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Captures) == 0 {
		return nil, ErrNothing
	}
	r, err := newReviewer(o)
	if err != nil {
		return nil, err
	}
	for i, parts := range recordings(oldestFirst(withParts(o.Captures))) {
		if i > 0 {
			if err := r.reset(); err != nil {
				return nil, err
			}
		}
		for _, path := range parts {
			if err := r.file(ctx, path); err != nil {
				return nil, err
			}
		}
	}
	return r.finish(), nil
}

// withParts adds the older parts of recordings, and takes each file once.
func withParts(paths []string) []string {
	var all []string
	for _, path := range paths {
		for _, part := range capture.Parts(path) {
			if !slices.Contains(all, part) {
				all = append(all, part)
			}
		}
	}
	return all
}

// rotation is what a name has of rotation: .1 of msb's and others', _00001_20260102030405 of dumpcap's and editcap's
// before the ending.
var rotation = lazyregexp.New(`\.\d+$|_\d{5}_\d{14}(?:(\.[A-Za-z]+)(?:\.gz)?)?$`)

// recordings puts the parts of one recording together, in their order.
func recordings(paths []string) [][]string {
	var all [][]string
	place := map[string]int{}
	for _, path := range paths {
		whole := rotation.Get().ReplaceAllString(path, "$1")
		i, known := place[whole]
		if !known {
			i = len(all)
			place[whole] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], path)
	}
	return all
}

// Read is Run for one capture that is open already.
func Read(ctx context.Context, name string, src io.Reader, o Options) (*Report, error) {
	r, err := newReviewer(o)
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx, name, src); err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// oldestFirst sorts captures by their first packets; one without a readable packet comes first.
func oldestFirst(paths []string) []string {
	if len(paths) < 2 {
		return paths
	}
	first := make(map[string]int64, len(paths))
	for _, path := range paths {
		first[path] = firstTime(path)
	}
	sorted := slices.Clone(paths)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(first[a], first[b]) })
	return sorted
}

// firstTime is when a capture's first packet was seen; 0 if it isn't known, as of a pipe, which can be read
// once. What is wrong with a capture is reported when it is read.
func firstTime(path string) int64 {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return 0
	}
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	reader, err := capture.NewReader(f)
	for err == nil {
		var rec *capture.Record
		if rec, err = reader.Next(); err == nil && rec.Kind == capture.PacketRecord {
			return rec.Time
		}
	}
	return 0
}

func (r *reviewer) file(ctx context.Context, path string) error {
	if path == "-" {
		r.report.unreadable(path, errors.New("for the standard input, give /dev/stdin"))
		r.report.unread++
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		r.report.unreadable(path, errors.Unwrap(err)) // the path stands before it anyway
		r.report.unread++
		return nil
	}
	defer func() { _ = f.Close() }()
	if err := recognise(f); err != nil {
		r.report.unreadable(path, err)
		r.report.unread++
		return nil
	}
	before := r.report.Bytes
	if err := r.read(ctx, path, f); err != nil {
		return err
	}
	if r.report.Bytes == before {
		r.report.unread++
	}
	return nil
}
