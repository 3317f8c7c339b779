package agentpb

import "io/fs"

// special are the permission bits that Go keeps elsewhere than Linux does.
var special = map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

// Permissions makes Go's permissions of those in Linux's st_mode (inode(7)), as messages hold it.
func Permissions(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	for bit, set := range special {
		if mode&bit != 0 {
			m |= set
		}
	}
	return m
}

// LinuxPermissions is the inverse of Permissions.
func LinuxPermissions(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for bit, set := range special {
		if m&set != 0 {
			mode |= bit
		}
	}
	return mode
}
