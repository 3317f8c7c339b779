//go:build linux

package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// defaultPath is the PATH of a process that was given none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// StartError is a program that could not be started, in a way that container
// tools report with the exit codes 126 and 127.
type StartError struct {
	NotFound bool
	Message  string
}

// Error implements error.
func (e *StartError) Error() string { return e.Message }

// Code is 127 for a program that does not exist, else 126.
func (e *StartError) Code() int {
	if e.NotFound {
		return 127
	}
	return 126
}

// lookPath finds the program as a shell would, with dir for relative names.
func lookPath(name, pathVar, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		}
		return name, executable(name)
	}
	var denied error
	for _, d := range strings.Split(pathVar, ":") {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		candidate := path.Join(d, name)
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if se := (*StartError)(nil); errors.As(err, &se) && !se.NotFound && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &StartError{NotFound: true, Message: fmt.Sprintf("%s: not found in PATH (%s)", name, pathVar)}
}

func executable(name string) error {
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &StartError{Message: name + ": permission denied"}
	case err != nil:
		return &StartError{NotFound: true, Message: name + ": no such file"}
	case st.IsDir():
		return &StartError{Message: name + ": is a directory"}
	case !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0:
		return &StartError{Message: name + ": not an executable file: give it the x bit (chmod +x), or run what reads it, such as sh " + name}
	}
	return nil
}

// execError names what the kernel said to execve.
func execError(name string, err error) error {
	var errno syscall.Errno
	if errors.Is(err, ErrRequest) || !errors.As(err, &errno) {
		return err
	}
	switch errno { //nolint:exhaustive // what execve says of the program; the rest is the machine's
	case syscall.ENOENT:
		return &StartError{NotFound: true, Message: name + ": its interpreter or a library loader is missing"}
	case syscall.ENOEXEC:
		return &StartError{Message: name + ": not a program for this machine (exec format error)"}
	case syscall.EACCES, syscall.EPERM, syscall.ELOOP, syscall.ENOTDIR, syscall.ETXTBSY, syscall.E2BIG, syscall.EINVAL:
		return &StartError{Message: name + ": " + errno.Error()}
	}
	return fmt.Errorf("start %s: %w", name, err)
}
