package rootfs

import "strings"

const (
	// maxNameBytes is Linux's NAME_MAX, and what an ext4 directory entry holds.
	maxNameBytes = 255
	// maxPathBytes is Linux's PATH_MAX with its NUL.
	maxPathBytes = 4096
)

// splitName splits an entry's name into its components. Absolute names and "./"
// mean the root, as in every container tool; ".." has no honest use and is refused.
func splitName(name string) ([]string, error) {
	if len(name) >= maxPathBytes {
		return nil, hostile(name, "the path is longer than %d bytes", maxPathBytes-1)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return nil, hostile(name, "the name holds a NUL byte")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, hostile(name, "the name leaves its directory with \"..\"")
		case len(part) > maxNameBytes:
			return nil, hostile(name, "a component is longer than %d bytes", maxNameBytes)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}
