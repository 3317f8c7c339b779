package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// othersWrite are the permission bits that let group or others write.
const othersWrite = 0o022

// checkOurs refuses a directory in which anybody but uid (and root) could plant files that are trusted later: a kernel, an
// image, a link in place of a lock. A link to a directory is fine, since it lies in a directory of ours.
func checkOurs(dir string, uid int) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != uid {
		return fmt.Errorf("%w: %s belongs to another user; set %s to a directory of your own, or chown it", ErrHome, dir, EnvHome)
	}
	if perm := info.Mode().Perm(); perm&othersWrite != 0 {
		return fmt.Errorf("%w: others may write to %s (mode %04o); check that its contents are yours, then run chmod go-w on it", ErrHome, dir, perm)
	}
	return nil
}
