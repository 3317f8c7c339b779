package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// peer is what msb is compared with. begin starts its program, whose guest is at the other end of link and has the
// address; its server is then at at.
type peer struct {
	name, path string
	begin      func(path string, guest netip.Addr) (link net.Conn, at string, stop func(), err error)
	// many is how many connections it has at once; none of QEMU's, which lets one wait and has the others try again.
	many int
}

type peers []peer

func startGvproxy(path string, guest netip.Addr) (link net.Conn, at string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "benchports")
	if err != nil {
		return nil, "", nil, err
	}
	sock, api := filepath.Join(dir, "qemu.sock"), filepath.Join(dir, "api.sock")
	cmd := exec.Command(path, "-listen-qemu", "unix://"+sock, "-listen", "unix://"+api, "-mtu", "1500", "-ssh-port", "-1")
	if err := cmd.Start(); err != nil {
		return nil, "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = os.RemoveAll(dir) }
	if at, err = freePort(); err != nil {
		stop()
		return nil, "", nil, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", api)
	}}}
	body := fmt.Sprintf(`{"local":%q,"remote":"%s:%d","protocol":"tcp"}`, at, guest, guestPort)
	err = await(func() error {
		resp, err := client.Post("http://gvproxy/services/forwarder/expose", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err == nil {
		link, err = net.Dial("unix", sock)
	}
	if err != nil {
		stop()
		return nil, "", nil, err
	}
	return link, at, stop, nil
}

// startQEMU starts QEMU without a machine: a hub leads from its user network, which publishes the port, to our link.
func startQEMU(path string, guest netip.Addr) (link net.Conn, at string, stop func(), err error) {
	far, link, err := linkPair()
	if err != nil {
		return nil, "", nil, err
	}
	defer func() { _ = far.Close() }()
	if at, err = freePort(); err != nil {
		_ = link.Close()
		return nil, "", nil, err
	}
	cmd := exec.Command(path, "-machine", "none", "-nodefaults", "-no-user-config", "-display", "none",
		"-netdev", fmt.Sprintf("user,id=user,net=%s/24,host=%s,dns=%s,dhcpstart=%s,hostfwd=tcp:%s-%s:%d", guest, guest.Prev(), guest.Next(), guest, at, guest, guestPort),
		"-netdev", "socket,id=link,fd=3", "-netdev", "hubport,id=a,hubid=0,netdev=user", "-netdev", "hubport,id=b,hubid=0,netdev=link")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{far}, os.Stderr
	if err := cmd.Start(); err != nil {
		_ = link.Close()
		return nil, "", nil, err
	}
	return link, at, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}

// linkPair are the ends of a link: one for a program that is started, one for this process.
func linkPair() (far *os.File, near net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	far = os.NewFile(uintptr(fds[0]), "far")
	file := os.NewFile(uintptr(fds[1]), "near")
	defer func() { _ = file.Close() }()
	if near, err = net.FileConn(file); err != nil {
		_ = far.Close()
	}
	return far, near, err
}

// freePort is an address of this machine at which nothing listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
