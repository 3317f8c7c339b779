package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// parseVolumes reads the values of -v.
func parseVolumes(values []string) ([]sandbox.Directory, error) {
	all := make([]sandbox.Directory, 0, len(values))
	for _, v := range values {
		d, err := parseVolume(v)
		if err != nil {
			return nil, fmt.Errorf("-v %s: %w", v, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// parseVolume takes HOST:GUEST[:MODE] apart from its end: a path of this machine may hold colons.
func parseVolume(v string) (d sandbox.Directory, err error) {
	rest, mode := v, "ro"
	if i := strings.LastIndexByte(v, ':'); i >= 0 && !strings.HasPrefix(v[i+1:], "/") {
		rest, mode = v[:i], v[i+1:]
	}
	i := strings.LastIndex(rest, ":/")
	if i <= 0 {
		return d, errors.New("write HOST:GUEST or HOST:GUEST:rw, with an absolute path in the guest, such as .:/work")
	}
	switch mode {
	case "ro":
	case "rw":
		d.Writable = true
	default:
		return d, fmt.Errorf("%q: it must be ro or rw", mode)
	}
	d.Host, d.Guest = rest[:i], path.Clean(rest[i+1:])
	if !strings.Contains(d.Host, "/") && d.Host != "." && d.Host != ".." {
		return d, fmt.Errorf("msb has no volumes with names; for the directory %s write ./%s", d.Host, d.Host)
	}
	return d, nil
}
