package runner

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
)

func ofFile(path string) Program {
	return func() (io.ReadCloser, error) { return os.Open(path) }
}

// eachProgram tests what starts in the test's own program, in the small one, and, as libkrun's does, in that and becomes it again: a
// copy of the test's program takes its place, since the small one attacks nothing.
func eachProgram(t *testing.T, test func(t *testing.T, start func(*Launch))) {
	for name, start := range map[string]func(*Launch){
		"this program":  func(*Launch) {},
		"small program": func(l *Launch) { l.Program = vmmtest.Program(t) },
		"small program again": func(l *Launch) {
			l.Program, l.Plan.Itself = ofFile(exe(t)), true
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, start) })
	}
}

// executedFrom looks at what a process was executed from: the file at path, or its sealed copy.
func executedFrom(pid int, path string) (string, error) {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	name, err := os.Readlink(link)
	if err != nil {
		return "", err
	}
	want, wantErr := os.Open(path)
	f, err := os.Open(link)
	if err = errors.Join(err, wantErr); err != nil {
		return "", err
	}
	defer want.Close()
	defer f.Close()
	one, other := sha256.New(), sha256.New()
	_, err = io.Copy(one, want)
	_, otherErr := io.Copy(other, f)
	if err = errors.Join(err, otherErr); err != nil || !bytes.Equal(one.Sum(nil), other.Sum(nil)) {
		return "", fmt.Errorf("the VMM is another program: %s: %w", name, err)
	}
	wantInfo, err := want.Stat()
	info, infoErr := f.Stat()
	if err = errors.Join(err, infoErr); err != nil {
		return "", err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	switch {
	case os.SameFile(info, wantInfo):
		return fromItself, nil
	case err == nil && got == seals && strings.HasPrefix(name, "/memfd:msb-vmm"):
		return fromMemory, nil
	}
	return "", fmt.Errorf("the VMM was executed from %s, with seals %#x (%w)", name, got, err)
}

// TestProgramsThatCannotBeExecuted are not: the VMM starts in the program that runs, with and without namespaces.
func TestProgramsThatCannotBeExecuted(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]Program{
		"not built in":    ofFile(filepath.Join(t.TempDir(), "nosuch")),
		"not executable":  func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("no program")), nil },
		"cannot be read":  ofFile(t.TempDir()),
		"nothing at all":  nil,
		"can be executed": ofFile(exe(t)),
	} {
		for _, namespaces := range []bool{true, false} {
			_, ro, rw := files(t)
			l := launch(t, []string{exe(t), victimArg}, ro, rw)
			l.Program, l.Plan.Itself = program, true
			log, err := newConsole("")
			if err != nil {
				t.Fatal(err)
			}
			m, err := l.attempt(t.Context(), log, namespaces)
			closeAll(l.Files)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			want := fromItself
			if name == "can be executed" {
				want = fromMemory
			}
			if from, err := executedFrom(m.PID(), ThisProgram); err != nil || from != want {
				t.Errorf("%s, namespaces %v: executed from %s (%v), want %s", name, namespaces, from, err, want)
			}
			if err := m.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
}

// forbidMemory sets vm.memfd_noexec for the processes of this process id namespace: with 2 they can't make files without a
// name that can be executed.
func forbidMemory(value string) error {
	return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""),
		os.WriteFile("/proc/sys/vm/memfd_noexec", []byte(value), 0))
}

// TestKernelsMayForbidSealedPrograms: the VMM then starts in the program that runs.
func TestKernelsMayForbidSealedPrograms(t *testing.T) { // not parallel: a child of another test would hold the pipe
	if _, err := os.Stat("/proc/sys/vm/memfd_noexec"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and Linux 6.3")
	}
	attr := &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	for _, tt := range []way{{"true", "true", "2", fromItself}, {"false", "true", "2", fromItself}, {"true", "true", "0", fromMemory}} {
		supervise(t, exe(t), tt, attr, func(string) error { return nil })
	}
}

// TestTrialsAreOfTheSmallProgram: what it reports is what is reported of the program that runs.
func TestTrialsAreOfTheSmallProgram(t *testing.T) {
	t.Parallel()
	one, err := Try(t.Context(), nil)
	other, otherErr := Try(t.Context(), vmmtest.Program(t))
	if err = errors.Join(err, otherErr); err != nil || fmt.Sprint(one) != fmt.Sprint(other) {
		t.Errorf("%+v and %+v, %v", one, other, err)
	}
}
