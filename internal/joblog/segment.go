package joblog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrDamaged means that a segment holds what no Writer wrote.
var ErrDamaged = errors.New("job log is damaged")

// suffix ends the name of every segment.
const suffix = ".log"

// segmentName is "<name>.<number>.log". A name holds no dot.
func segmentName(name string, n uint64) string {
	return name + "." + strconv.FormatUint(n, 10) + suffix
}

// parseSegment takes a segment's file name apart.
func parseSegment(file string) (name string, n uint64, ok bool) {
	name, number, _ := strings.Cut(strings.TrimSuffix(file, suffix), ".")
	n, err := strconv.ParseUint(number, 10, 64)
	return name, n, err == nil && name != "" && segmentName(name, n) == file
}

// IsSegment reports whether a file's name is that of a segment, of whatever log.
func IsSegment(file string) bool {
	_, _, ok := parseSegment(file)
	return ok
}

// segments are the numbers of the segments that name has in dir, in order.
func segments(dir, name string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, e := range entries {
		if of, n, ok := parseSegment(e.Name()); ok && of == name {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Remove deletes the log of that name in dir. One that isn't there is no error.
func Remove(dir, name string) error {
	all, err := segments(dir, name)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(all))
	for _, n := range all {
		if err := os.Remove(filepath.Join(dir, segmentName(name, n))); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
