package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
)

// links gives one link after the other: what --listen names.
type links struct {
	next  func(ctx context.Context) (netstack.Link, error)
	close func()
}

// errNoMoreLinks ends --keep when no further link can come (an inherited descriptor).
var errNoMoreLinks = errors.New("no more links")

func openLinks(ctx context.Context, listen, kind string) (*links, error) {
	stream := kind == "qemu"
	if !stream && kind != "vfkit" {
		return nil, &usageError{err: fmt.Errorf("--link %q: it must be qemu or vfkit", kind), help: "msb gateway --help"}
	}
	if path, ok := strings.CutPrefix(listen, "unix://"); ok && path != "" {
		if stream {
			return listenStream(ctx, path)
		}
		return listenDatagram(path)
	}
	if n, ok := strings.CutPrefix(listen, "fd:"); ok {
		if fd, err := strconv.ParseUint(n, 10, 31); err == nil && fd > 2 {
			return inherited(int(fd), stream)
		}
	}
	return nil, &usageError{err: fmt.Errorf("--listen %q: write unix:///PATH or fd:N with N above 2", listen), help: "msb gateway --help"}
}

func listenStream(ctx context.Context, path string) (*links, error) {
	// Only the user's own VMM may connect: the link is the guest's identity.
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, listenError(path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &links{
		next: func(ctx context.Context) (netstack.Link, error) {
			stop := context.AfterFunc(ctx, func() { _ = l.Close() })
			defer stop()
			c, err := l.Accept()
			if err != nil {
				return nil, err
			}
			return netstack.NewStreamLink(c), nil
		},
		close: func() { _ = l.Close() },
	}, nil
}

// listenDatagram makes the first socket at once, before the ready line, and another for each later link, since a datagram
// socket has one peer.
func listenDatagram(path string) (*links, error) {
	waiting, err := bindDatagram(path)
	if err != nil {
		return nil, err
	}
	return &links{
		next: func(ctx context.Context) (netstack.Link, error) {
			c := waiting
			if waiting = nil; c == nil {
				if c, err = bindDatagram(path); err != nil {
					return nil, err
				}
			}
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			link, err := netstack.AcceptDatagramLink(c)
			if err != nil {
				return nil, errors.Join(err, ignoreMissing(os.Remove(path)))
			}
			return &unlinking{Link: link, path: path}, nil
		},
		close: func() {
			if waiting != nil {
				_ = errors.Join(waiting.Close(), os.Remove(path))
			}
		},
	}, nil
}

func bindDatagram(path string) (*net.UnixConn, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, listenError(path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, c.Close(), os.Remove(path))
	}
	return c, nil
}

// listenError adds the remedy to an error about --listen's path.
func listenError(path string, err error) error {
	remedy := "give --listen another path"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		remedy = "is another gateway running, or a file left from one? Remove it, or choose another path"
	case errors.Is(err, os.ErrNotExist):
		remedy = "its directory does not exist; make it first: mkdir -p " + filepath.Dir(path)
	case errors.Is(err, syscall.ENOTDIR):
		remedy = filepath.Dir(path) + " is no directory"
	case errors.Is(err, os.ErrPermission):
		remedy = "choose a directory that you may write"
	case errors.Is(err, syscall.EINVAL):
		remedy = "the path of a socket has at most 107 bytes; choose a shorter one"
	}
	return &usageError{err: fmt.Errorf("--listen: %w; %s", err, remedy), help: "msb gateway --help"}
}

// unlinking removes the socket's file when the link ends, which package net does for streams only.
type unlinking struct {
	netstack.Link
	path string
}

// Close implements netstack.Link.
func (u *unlinking) Close() error {
	return errors.Join(u.Link.Close(), ignoreMissing(os.Remove(u.path)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// inherited takes over the one link of a descriptor, before the ready line.
func inherited(fd int, stream bool) (*links, error) {
	f := os.NewFile(uintptr(fd), "link")
	var link netstack.Link
	var err error
	if stream {
		link, err = netstack.NewStreamLinkFile(f)
	} else {
		link, err = netstack.NewDatagramLinkFile(f)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen fd:%d: %w", fd, err)
	}
	used := false
	return &links{
		next: func(context.Context) (netstack.Link, error) {
			if used {
				return nil, errNoMoreLinks
			}
			used = true
			return link, nil
		},
		close: func() {
			if !used {
				_ = link.Close()
			}
		},
	}, nil
}

// serve puts the gateway on each link in turn.
func (l *links) serve(ctx context.Context, keep bool, g *gateway.Gateway) error {
	for {
		link, err := l.next(ctx)
		if err == nil {
			err = g.Serve(ctx, link)
		}
		if ctx.Err() != nil || errors.Is(err, errNoMoreLinks) || errors.Is(err, io.EOF) {
			err = nil
			keep = keep && ctx.Err() == nil && link != nil
		}
		if !keep || err != nil {
			return err
		}
	}
}
