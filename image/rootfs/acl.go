package rootfs

import (
	"encoding/binary"
	"errors"
)

// POSIX ACLs have one form in getxattr (linux/posix_acl_xattr.h, version 2, every
// entry with an id) and another on an ext4 disk (fs/ext4/acl.h, version 1, ids
// only where they mean something). compactext4 stores values as they are, so
// that the kernel would answer EINVAL: the value is converted here.
const (
	aclXattrVersion = 2
	aclDiskVersion  = 1
	aclXattrEntry   = 8
	aclTagUser      = 0x02
	aclTagGroup     = 0x08
)

var errACL = errors.New("not a POSIX access control list of version 2")

func diskACL(value string) (string, error) {
	b := []byte(value)
	if len(b) < 4 || (len(b)-4)%aclXattrEntry != 0 || binary.LittleEndian.Uint32(b) != aclXattrVersion {
		return "", errACL
	}
	out := binary.LittleEndian.AppendUint32(nil, aclDiskVersion)
	for e := b[4:]; len(e) > 0; e = e[aclXattrEntry:] {
		out = append(out, e[:4]...)
		switch binary.LittleEndian.Uint16(e) {
		case aclTagUser, aclTagGroup:
			out = append(out, e[4:8]...)
		case 0x01, 0x04, 0x10, 0x20: // owner, owning group, mask, others: no id on the disk
		default:
			return "", errACL
		}
	}
	return string(out), nil
}
