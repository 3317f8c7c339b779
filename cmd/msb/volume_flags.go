package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// parseVolumes reads the values of -v: as in docker, a source without a slash is the name of a volume.
func parseVolumes(values []string) (dirs []sandbox.Directory, volumes []sandbox.Volume, err error) {
	for _, text := range values {
		if strings.HasPrefix(text, "/") && !strings.Contains(text, ":") {
			return nil, nil, fmt.Errorf("-v %s: each volume has a name; write NAME:%s, or --tmpfs %s for what need not stay", text, text, text)
		}
		if name, rest, ok := strings.Cut(text, ":"); ok && name != "" && name != "." && name != ".." && !strings.Contains(name, "/") {
			v, err := parseVolume(name, rest)
			if err != nil {
				return nil, nil, fmt.Errorf("-v %s: %w; for the directory write ./%s", text, leftOut(text, err), name)
			}
			volumes = append(volumes, v)
			continue
		}
		d, err := policies.ParseDirectory(text)
		if err != nil {
			return nil, nil, fmt.Errorf("-v %s: %w", text, leftOut(text, err))
		}
		dirs = append(dirs, d)
	}
	return dirs, volumes, nil
}

// otherModes are docker's options of -v that say how a directory is labelled, cached, propagated or filled.
var otherModes = []string{"z", "Z", "consistent", "cached", "delegated", "nocopy", "private", "rprivate", "shared", "rshared", "slave", "rslave"}

// leftOut adds to the error about a value of -v which of its options are docker's alone.
func leftOut(text string, err error) error {
	var others []string
	for _, option := range strings.Split(text[strings.LastIndexByte(text, ':')+1:], ",") {
		if slices.Contains(otherModes, option) {
			others = append(others, option)
		}
	}
	if others == nil {
		return err
	}
	return fmt.Errorf("%w; leave out %s, which means nothing here", err, strings.Join(others, " and "))
}

// parseDirectories reads the values of -v for commands that take no volumes.
func parseDirectories(values []string) ([]sandbox.Directory, error) {
	all := make([]sandbox.Directory, 0, len(values))
	for _, v := range values {
		d, err := policies.ParseDirectory(v)
		if err != nil {
			return nil, fmt.Errorf("-v %s: %w", v, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// parseVolume reads GUEST[:ro|rw] of a volume.
func parseVolume(name, rest string) (v sandbox.Volume, err error) {
	guest, mode, _ := strings.Cut(rest, ":")
	v = sandbox.Volume{Name: name, Guest: path.Clean(guest), ReadOnly: mode == "ro"}
	switch {
	case !path.IsAbs(guest):
		return v, errors.New("write NAME:GUEST[:ro] for a volume, with an absolute path in the guest, such as data:/var/lib/data")
	case mode != "" && mode != "ro" && mode != "rw":
		return v, fmt.Errorf("%q: it must be ro or rw", mode)
	}
	return v, sandbox.CheckVolumeName(name)
}
