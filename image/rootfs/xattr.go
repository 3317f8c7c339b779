package rootfs

import (
	"sort"
	"strings"
)

// xattrPAXPrefix is how GNU tar, star, bsdtar and every image builder write
// extended attributes into PAX records.
const xattrPAXPrefix = "SCHILY.xattr."

// xattrPrefixes are the names that ext4 stores by number; others can't be stored
// and no Linux container runtime could set them.
var xattrPrefixes = []string{"user.", "trusted.", "security."}

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

// overlayXattrs steer overlayfs: a layer that brings them could point the guest's
// overlay at other directories (redirect, metacopy) or hide files (opaque).
var overlayXattrs = []string{"trusted.overlay.", "user.overlay."}

const (
	// inlineXattrBytes is what a 256-byte inode of compactext4 leaves for attributes.
	inlineXattrBytes = 256 - 152 - 8
	// blockXattrBytes is what the one attribute block of an inode holds.
	blockXattrBytes = 4096 - 36
	xattrEntryBytes = 16
)

// readXattrs takes the attributes of an entry, checked to fit into one inode of
// the disk. Overlay's own are dropped, so are those that Linux has no namespace for.
func readXattrs(name string, records map[string]string) (map[string]string, error) {
	var out map[string]string
	for key, value := range records {
		attr, ok := strings.CutPrefix(key, xattrPAXPrefix)
		if !ok || !keptXattr(attr) {
			continue
		}
		if strings.IndexByte(attr, 0) >= 0 || len(attr) > maxNameBytes {
			return nil, hostile(name, "extended attribute %s has an impossible name", quoteName(attr))
		}
		if attr == aclAccess || attr == aclDefault {
			if _, err := diskACL(value); err != nil {
				return nil, hostile(name, "extended attribute %q: %v", attr, err)
			}
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[strings.Clone(attr)] = strings.Clone(value)
	}
	if attr := overflowingXattr(out); attr != "" {
		return nil, hostile(name, "extended attribute %s does not fit: an inode holds about 4 KiB of them", quoteName(attr))
	}
	return out, nil
}

func keptXattr(attr string) bool {
	for _, p := range overlayXattrs {
		if strings.HasPrefix(attr, p) {
			return false
		}
	}
	if attr == aclAccess || attr == aclDefault {
		return true
	}
	for _, p := range xattrPrefixes {
		if strings.HasPrefix(attr, p) && len(attr) > len(p) {
			return true
		}
	}
	return false
}

// overflowingXattr places attributes as compactext4 does, in order of name, into
// the inode and then the block, and returns the first that fits in neither.
func overflowingXattr(attrs map[string]string) string {
	if len(attrs) == 0 {
		return ""
	}
	names := make([]string, 0, len(attrs))
	for n := range attrs {
		names = append(names, n)
	}
	sort.Strings(names)
	inline, block := inlineXattrBytes, blockXattrBytes
	for _, n := range names {
		size := xattrEntryBytes + roundUp4(len(xattrSuffix(n))) + roundUp4(len(attrs[n]))
		switch {
		case size <= inline:
			inline -= size
		case size <= block:
			block -= size
		default:
			return n
		}
	}
	return ""
}

func xattrSuffix(name string) string {
	if name == aclAccess || name == aclDefault {
		return ""
	}
	_, suffix, _ := strings.Cut(name, ".")
	return suffix
}

func roundUp4(n int) int { return (n + 3) &^ 3 }

func xattrBytes(attrs map[string]string) int {
	n := 0
	for k, v := range attrs {
		n += len(k) + len(v) + xattrBytesEach
	}
	return n
}
