//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

var errOutput = errors.New("unexpected output")

// process is one of this machine's, as /proc describes it.
type process struct {
	pid, parent int
	argv        []string
	resident    int64 // bytes
}

// processes lists all processes that are still there when looked at.
func processes() ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, dir := range dirs {
		if p, ok := readProcess(dir); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

func readProcess(dir string) (process, bool) {
	var p process
	p.pid, _ = strconv.Atoi(filepath.Base(dir))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2:
		case fields[0] == "PPid:":
			p.parent, _ = strconv.Atoi(fields[1])
		case fields[0] == "VmRSS:":
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			p.resident = kib << 10
		}
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	for _, arg := range bytes.Split(bytes.TrimRight(line, "\x00"), []byte{0}) {
		p.argv = append(p.argv, string(arg))
	}
	return p, err == nil
}

// below returns the descendants of a process.
func below(list []process, pid int) []process {
	var all []process
	for _, p := range list {
		if p.parent == pid {
			all = append(append(all, p), below(list, p.pid)...)
		}
	}
	return all
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
