package cow

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const (
	// maxRecords and maxRecordBytes bound what is recorded of one directory in one
	// run: files, and the bytes of their paths. A file that has no record is never
	// written over unless its user says so.
	maxRecords     = 1 << 18
	maxRecordBytes = 32 << 20

	// maxBaseFile bounds what is read of a file of records, in bytes: one run's, and
	// what applied changes add.
	maxBaseFile = 256 << 20
)

// File is what tells a version of a file of the host from another. The zero
// value is no file.
type File struct {
	// Mode is Linux's st_mode.
	Mode        uint32
	Inode, Size uint64
	// Modified and Changed are st_mtim and st_ctim, in nanoseconds.
	Modified, Changed int64
}

// Base is, by the path from the directory's top, what the guest was shown.
type Base map[string]File

// ReadBase reads the records at path. A missing file is an empty Base, and a
// line that was cut short by a kill is left out.
func ReadBase(path string) (Base, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Base{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	base := Base{}
	lines := bufio.NewScanner(io.LimitReader(f, maxBaseFile))
	lines.Buffer(make([]byte, 64<<10), 64<<10)
	for lines.Scan() {
		if name, file, ok := parseRecord(lines.Bytes()); ok {
			base[name] = file
		}
	}
	return base, lines.Err()
}

func parseRecord(line []byte) (name string, f File, ok bool) {
	head, quoted, ok := bytes.Cut(line, []byte(" \""))
	if !ok {
		return "", f, false
	}
	n, err := fmt.Sscanf(string(head), "%o %d %d %d %d", &f.Mode, &f.Inode, &f.Size, &f.Modified, &f.Changed)
	if err != nil || n != 5 {
		return "", f, false
	}
	name, err = strconv.Unquote("\"" + string(quoted))
	return name, f, err == nil
}

func (f File) record(name string) []byte {
	return fmt.Appendf(nil, "%o %d %d %d %d %s\n", f.Mode, f.Inode, f.Size, f.Modified, f.Changed, strconv.Quote(name))
}

// appendTo adds a record: what has been written to the host, say.
func appendTo(path, name string, f File) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.record(name))
	return errors.Join(err, out.Close())
}

// Recorder writes down what a guest is shown. Its methods may be called from
// several goroutines.
type Recorder struct {
	mu    sync.Mutex
	out   *os.File
	old   Base            // of earlier runs
	fresh map[string]bool // whether it was opened
	bytes int
	full  bool
}

// OpenRecorder continues the records at path.
func OpenRecorder(path string) (*Recorder, error) {
	old, err := ReadBase(path)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 { // once for each name, and without what a kill cut short
		var b bytes.Buffer
		for name, f := range old {
			b.Write(f.record(name))
		}
		if err := renameio.WriteFile(path, b.Bytes(), 0o600, renameio.WithStaticPermissions(0o600)); err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &Recorder{out: out, old: old, fresh: map[string]bool{}}, nil
}

// Shown records what the guest is shown for the first time in this run: it may go
// by that until the run ends. An open counts more than a lookup, since the guest
// then knows the content. The overlay doesn't look up the host's version of a
// file that the guest changed in an earlier run, so that the record of that run
// stays.
func (r *Recorder) Shown(name string, f File, opened bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.fresh[name]
	if r.full || known && (before || !opened) {
		return
	}
	if r.bytes += len(name); len(r.fresh) == maxRecords || r.bytes > maxRecordBytes {
		r.full = true
		return
	}
	r.fresh[name] = opened
	if was, recorded := r.old[name]; recorded && !known && was == f {
		return
	}
	if _, err := r.out.Write(f.record(name)); err != nil {
		r.full = true // what has no record is not written over
	}
}

// Close ends the recording.
func (r *Recorder) Close() error { return r.out.Close() }
