package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// process is one of those that belong to the rounds.
type process struct{ pid, parent int }

// processes are this one, those of the program, which nobody else runs, and their children.
func processes(program string) (all []process, supervisors map[int]bool, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, err
	}
	parents, ours := map[int]int{}, map[int]bool{os.Getpid(): true}
	supervisors = map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		parents[pid] = parentOf(pid)
		if exe, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil && exe == program {
			ours[pid], supervisors[pid] = true, true
		}
	}
	for pid, parent := range parents {
		if ours[pid] || ours[parent] {
			all = append(all, process{pid, parent})
		}
	}
	return all, supervisors, nil
}

func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0 // it has ended
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

func descriptors(pid int) int64 {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return 0 // it has ended
	}
	return int64(len(entries))
}

// memory is a process's proportional part, in bytes.
func memory(pid int) int64 {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0 // it has ended
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// diskOf is what the files below dir take, in bytes.
func diskOf(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			total += st.Blocks * 512
		}
		return nil
	})
	return total, err
}

// take measures after a round. guest is the number of processes in the guest that stays.
func (s *soak) take(guest int64) (sample, error) {
	runtime.GC()
	all, supervisors, err := processes(s.program)
	if err != nil {
		return nil, err
	}
	var open, supervisor, vmm int64
	for _, p := range all {
		open += descriptors(p.pid)
		switch {
		case p.pid == os.Getpid():
		case supervisors[p.pid]:
			supervisor += memory(p.pid)
		default:
			vmm += memory(p.pid)
		}
	}
	disk, err := diskOf(s.home)
	if err != nil {
		return nil, err
	}
	return sample{int64(len(all)), open, int64(runtime.NumGoroutine()), memory(os.Getpid()), supervisor, vmm, guest, disk}, nil
}
