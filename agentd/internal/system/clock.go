//go:build linux

package system

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetClock sets the wall clock and returns how far off it was.
func SetClock(t time.Time) (time.Duration, error) {
	offset := time.Until(t)
	ts, err := unix.TimeToTimespec(t)
	if err == nil {
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err != nil {
		return 0, fmt.Errorf("set the clock to %s: %w", t.UTC().Format(time.RFC3339), err)
	}
	return -offset, nil
}

// maxSeedBytes is what one call adds; the kernel's pool is 32 bytes wide.
const maxSeedBytes = 1024

// entropy is struct rand_pool_info of linux/random.h.
type entropy struct {
	bits  int32
	bytes int32
	data  [maxSeedBytes]byte
}

// Seed adds the host's randomness to the kernel's and makes it count at once:
// a machine without hardware randomness, or two copies of one snapshot, would
// share keys otherwise.
func Seed(seed []byte) error {
	if len(seed) == 0 {
		return nil
	}
	fd, err := unix.Open("/dev/urandom", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the random device: %w", err)
	}
	defer unix.Close(fd)
	var e entropy
	n := copy(e.data[:], seed)
	e.bits, e.bytes = int32(8*n), int32(n)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&e))); errno != 0 {
		return fmt.Errorf("add randomness: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), rndReseedCRNG, 0); errno != 0 {
		return fmt.Errorf("use the new randomness: %w", errno)
	}
	return nil
}

// rndReseedCRNG is RNDRESEEDCRNG of linux/random.h, _IO('R', 7).
const rndReseedCRNG = 0x5207
