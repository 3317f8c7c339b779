//go:build linux

package system

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stats is what the machine uses.
type Stats struct {
	MemoryTotal, MemoryAvailable int64
	Uptime, CPUBusy              time.Duration
	Processes                    int
	OOMKills                     uint64
	// RootTotal and RootAvailable are of the workload's root, in bytes.
	RootTotal, RootAvailable int64
}

// userHZ is the unit of /proc/stat on every Linux architecture we run on.
const userHZ = 100

// ReadStats reads /proc and looks at the root; what can't be read is 0.
func ReadStats() Stats {
	var s Stats
	mem := fields("/proc/meminfo")
	s.MemoryTotal, s.MemoryAvailable = first(mem["MemTotal:"])<<10, first(mem["MemAvailable:"])<<10
	s.OOMKills = uint64(first(fields("/proc/vmstat")["oom_kill"]))
	var busy int64
	for i, v := range fields("/proc/stat")["cpu"] {
		// user nice system idle iowait irq softirq steal; guest is in user.
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && i != 3 && i != 4 && i < 8 {
			busy += n
		}
	}
	s.CPUBusy = time.Duration(busy) * time.Second / userHZ
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		s.Uptime = time.Duration(info.Uptime) * time.Second
		s.Processes = int(info.Procs)
	}
	var root unix.Statfs_t
	if unix.Statfs(rootDir, &root) == nil {
		s.RootTotal, s.RootAvailable = int64(root.Blocks)*root.Bsize, int64(root.Bavail)*root.Bsize
	}
	return s
}

// fields maps the first word of each line to the others.
func fields(path string) map[string][]string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	m := make(map[string][]string)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			m[f[0]] = f[1:]
		}
	}
	return m
}

func first(words []string) int64 {
	if len(words) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ThreadLimit is how many threads the kernel has room for.
func ThreadLimit() int {
	b, err := os.ReadFile("/proc/sys/kernel/threads-max")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}
