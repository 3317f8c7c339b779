package review

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/msb-project/msb/capture"
)

// Damage is a capture that could not be read, or not to its end.
type Damage struct {
	File string
	Err  error
}

// Reasons why a file is no capture that can be read; see also those of package capture.
var (
	ErrDirectory = errors.New("it is a directory")
	ErrEmpty     = errors.New("it is empty")
	ErrPacked    = errors.New("it is compressed")
)

// String names file, place, cause and remedy.
func (d Damage) String() string { return d.File + ": " + d.Err.Error() + "; " + d.remedy() }

func (d Damage) remedy() string {
	var at *capture.Error
	switch {
	case errors.Is(d.Err, os.ErrNotExist):
		return "check its path"
	case errors.Is(d.Err, os.ErrPermission):
		return "captures have mode 0600: read it as the user who recorded it"
	case errors.Is(d.Err, ErrDirectory):
		return "name the captures in it, as in DIR/*.pcapng*"
	case errors.Is(d.Err, ErrEmpty):
		return "a recording that was begun has at least its head: record it again, with --pcap"
	case errors.Is(d.Err, ErrPacked):
		return "unpack it first"
	case errors.Is(d.Err, capture.ErrLink):
		return "what else was readable is shown"
	case errors.As(d.Err, &at) && at.Offset == 0 && errors.Is(d.Err, capture.ErrFormat):
		return "name a pcap or pcapng file, such as --pcap writes"
	case errors.Is(d.Err, capture.ErrTruncated):
		return "what was readable is shown; the recording goes on still, or was killed, or was copied in part"
	}
	return "what was readable is shown"
}

// Unread are the captures of which nothing was read.
func (r *Report) Unread() int { return r.unread }

// unreadable notes a capture that can't be read, or no further.
func (r *Report) unreadable(name string, err error) {
	r.Damage = append(r.Damage, Damage{File: name, Err: err})
}

// recognise says what a file is that is surely no capture.
func recognise(f *os.File) error {
	st, err := f.Stat()
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return ErrDirectory
	case !st.Mode().IsRegular():
		return nil
	}
	var head [4]byte
	n, err := f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, magic := range []string{"\x1f\x8b", "BZh", "\xfd7zX", "\x28\xb5\x2f\xfd", "PK\x03\x04"} { // gzip, bzip2, xz, zstd, zip
		if bytes.HasPrefix(head[:n], []byte(magic)) {
			return ErrPacked
		}
	}
	return nil
}
