package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is a process of a guest, as the guest reports it.
type Process struct {
	PID    int    `json:"pid"`
	Parent int    `json:"ppid"`
	UID    uint32 `json:"uid"`
	// State is the letter of ps(1): R runs, S sleeps, D waits for a disk, T is stopped, Z has ended.
	State string `json:"state"`
	// Memory is what is resident, in bytes.
	Memory int64 `json:"memory_bytes"`
	// Command is the command line, or the program's name in brackets where there is none.
	Command []string `json:"command"`
}

const (
	// maxProcesses bounds how many processes of a guest are read, maxProcessFile a file about one, in bytes.
	maxProcesses   = 4096
	maxProcessFile = 16 << 10
)

// kernelThreads is the parent of the kernel's own threads, and agentPID the agent: neither is the workload's.
const agentPID, kernelThreads = 1, 2

// Processes are those of the workload, in the order of their numbers. The image needs no ps.
func (s *Sandbox) Processes(ctx context.Context) ([]Process, error) {
	return readProcesses(ctx, s, maxProcesses)
}

// readProcesses reads at most that many processes.
func readProcesses(ctx context.Context, s *Sandbox, most int) ([]Process, error) {
	entries, err := s.Files().ReadDir(ctx, "/proc")
	if err != nil {
		return nil, Fail(err)
	}
	all := make([]Process, 0, min(len(entries), most))
	read := 0 // also those that are left out, of which a guest may list any number
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= kernelThreads || read == most {
			continue
		}
		read++
		p, err := readProcess(ctx, s, pid)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
			continue // ended just now
		case err != nil:
			return nil, Fail(err)
		case p.Parent != kernelThreads:
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return all, nil
}

func readProcess(ctx context.Context, s *Sandbox, pid int) (Process, error) {
	dir := path.Join("/proc", strconv.Itoa(pid))
	status, err := readShort(ctx, s, path.Join(dir, "status"))
	if err != nil {
		return Process{}, err
	}
	command, err := readShort(ctx, s, path.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, err
	}
	return parseProcess(pid, status, command)
}

// readShort reads the beginning of a file of the guest's.
func readShort(ctx context.Context, s *Sandbox, name string) (string, error) {
	r, err := s.Files().Open(ctx, name, 0, maxProcessFile)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxProcessFile))
	return string(b), errors.Join(err, r.Close())
}

// parseProcess reads the files status and cmdline of proc(5).
func parseProcess(pid int, status, command string) (Process, error) {
	p := Process{PID: pid}
	var name string
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimSpace(value)
		first, _, _ := strings.Cut(strings.ReplaceAll(value, "\t", " "), " ")
		var err error
		switch key {
		case "Name":
			name = value
		case "State":
			p.State = first
		case "PPid":
			p.Parent, err = strconv.Atoi(first)
		case "Uid":
			var uid uint64
			uid, err = strconv.ParseUint(first, 10, 32)
			p.UID = uint32(uid)
		case "VmRSS":
			p.Memory, err = strconv.ParseInt(first, 10, 42)
			p.Memory <<= 10 // it is in KiB
		}
		if err != nil {
			return p, fmt.Errorf("the guest says of process %d: %s %.40q, which is no number", pid, key, value)
		}
	}
	if p.Command = strings.Split(strings.TrimRight(command, "\x00"), "\x00"); p.Command[0] == "" {
		p.Command = []string{"[" + name + "]"}
	}
	return p, nil
}
