package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processUsage is the processor time of a process and its resident memory in bytes; 0 of one that is gone.
func processUsage(pid int) (cpu time.Duration, resident int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	return parseUsage(b)
}

// parseUsage reads a process's stat file (proc(5): fields 14, 15 and 24). The name before the fields may hold anything.
func parseUsage(b []byte) (cpu time.Duration, resident int64) {
	const user, system, pages = 11, 12, 21 // counted from the state
	const ticks = 100                      // USER_HZ of every architecture that msb runs on
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) <= pages {
		return 0, 0
	}
	var n [3]int64
	for i, at := range []int{user, system, pages} {
		n[i], _ = strconv.ParseInt(fields[at], 10, 64) // the kernel's word
	}
	return time.Duration(n[0]+n[1]) * time.Second / ticks, n[2] * int64(os.Getpagesize())
}

// diskUsage is the size of a sparse file, and what it takes on the disk, in bytes.
func diskUsage(path string) (size, used int64) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0, 0
	}
	return st.Size, st.Blocks * 512
}
