//go:build !linux

package state

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"time"
)

func shortPath(dir, file string) (path string, done func(), err error) {
	return filepath.Join(dir, file), func() {}, nil
}

// ProcessID names a process. No guest starts here, so that there is none to name.
type ProcessID struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

func Identify(pid int) ProcessID { return ProcessID{PID: pid} }

func (ProcessID) over() bool { return false }

func (ProcessID) Gone(time.Duration) error { return nil }

func (ProcessID) End(context.Context, time.Duration) error { return errors.ErrUnsupported }

func EndPeer(context.Context, net.Conn, time.Duration) error { return errors.ErrUnsupported }

func WatchPeer(net.Conn) (func(context.Context) error, error) { return nil, errors.ErrUnsupported }

func SignalPeer(net.Conn, syscall.Signal) error { return errors.ErrUnsupported }
