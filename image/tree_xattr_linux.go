package image

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// xattrRecords reads the extended attributes of an open file as PAX records.
func xattrRecords(f *os.File) (map[string]string, error) {
	fd := int(f.Fd())
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: f.Name(), Err: err}
	}
	var out map[string]string
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !keptHostXattr(name) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "getxattr", Path: f.Name(), Err: err}
		}
		if out == nil {
			out = make(map[string]string)
		}
		out["SCHILY.xattr."+name] = string(value[:n])
	}
	return out, nil
}
