//go:build !linux

package sandbox

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

// processID names a process. No guest starts here, so that there is none to name.
type processID struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

func identify(pid int) processID { return processID{PID: pid} }

func (processID) over() bool { return false }

func (processID) gone(time.Duration) error { return nil }

func (processID) end(context.Context, time.Duration) error { return errors.ErrUnsupported }

func endPeer(context.Context, net.Conn, time.Duration) error { return errors.ErrUnsupported }

func signalPeer(net.Conn, syscall.Signal) error { return errors.ErrUnsupported }

func allocated(string) int64 { return 0 }
