//go:build linux

package workload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StageName is argv[0] of the agent's own program as the first of two that a process becomes: see Command.Stage.
const StageName = "msb-exec"

// maxInterpreters is how many scripts may be each other's interpreters, as in the kernel (exec_binprm).
const maxInterpreters = 5

// RunStage makes the process the program that its arguments name. It returns the exit code for one that can't be started.
func RunStage(args []string) int {
	if len(args) < 3 {
		return (&StartError{}).Code()
	}
	err := execError(args[1], syscall.Exec(args[1], args[2:], os.Environ()))
	os.Stderr.WriteString(err.Error() + "\n")
	se := &StartError{}
	errors.As(err, &se)
	return se.Code()
}

// staged makes c begin with c.Stage, unless all that the kernel reads to start program is in the root itself.
func (c *Command) staged(program string) string {
	if c.Stage == nil || c.Program != nil || inRoot(program) {
		return program
	}
	c.Argv, c.Program = append([]string{StageName, program}, c.Argv...), c.Stage
	return fdPath(c.Stage)
}

// inRoot reports whether a program and its interpreters are files of the root's own mount.
func inRoot(program string) bool {
	var top unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID, &top); err != nil {
		return false
	}
	for range maxInterpreters {
		var info unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, program, 0, unix.STATX_MNT_ID|unix.STATX_TYPE, &info)
		if err != nil || info.Mask&unix.STATX_MNT_ID == 0 || info.Mnt_id != top.Mnt_id || info.Mode&unix.S_IFMT != unix.S_IFREG {
			return false
		}
		next, err := interpreter(program)
		if err != nil || next == "" {
			return err == nil
		}
		program = next
	}
	return false
}

var errNoProgram = errors.New("no program of 64 bits, and no script")

// interpreter is what the kernel starts in place of a script or loads beside a program; "" for nothing. It reads as
// little as the kernel does, of whatever the workload has put there.
func interpreter(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // not held up by a FIFO
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errNoProgram
	}
	head := make([]byte, 256) // BINPRM_BUF_SIZE
	n, _ := f.ReadAt(head, 0)
	if line, script := bytes.CutPrefix(head[:n], []byte("#!")); script {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if words := strings.Fields(string(line)); len(words) > 0 && path.IsAbs(words[0]) {
			return words[0], nil
		}
		return "", errNoProgram
	}
	if !bytes.HasPrefix(head, []byte("\x7fELF\x02\x01")) {
		return "", errNoProgram
	}
	const header, maxHeaders, interp = 56, 64, 3 // Elf64_Phdr, as many as programs have several times over, PT_INTERP
	start, count := int64(order.Uint64(head[32:])), min(order.Uint16(head[56:]), maxHeaders)
	for i := range int64(count) {
		var p [header]byte
		if _, err := f.ReadAt(p[:], start+i*header); err != nil {
			return "", errNoProgram
		}
		if order.Uint32(p[:]) != interp {
			continue
		}
		name := make([]byte, min(order.Uint64(p[32:]), unix.PathMax))
		if _, err := f.ReadAt(name, int64(order.Uint64(p[8:]))); err != nil {
			return "", errNoProgram
		}
		name, _, _ = bytes.Cut(name, []byte{0})
		return string(name), nil
	}
	return "", nil
}

var order = binary.LittleEndian // of the guests' programs
