//go:build linux

package main

import (
	"encoding/hex"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// etherType is of the range for local experiments (IEEE 802).
const etherType = 0x88b5

// link opens a packet socket on eth0, brought up.
func link() (int, *unix.SockaddrLinklayer, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(swap(etherType)))
	if err != nil {
		return -1, nil, err
	}
	if err := up(fd, "eth0"); err != nil {
		return -1, nil, err
	}
	dev, err := net.InterfaceByName("eth0")
	if err != nil {
		return -1, nil, err
	}
	address := &unix.SockaddrLinklayer{Ifindex: dev.Index, Protocol: swap(etherType)}
	return fd, address, unix.Bind(fd, address)
}

// sendFrame sends one frame, given in hex.
func sendFrame(args []string) (string, error) {
	fd, address, err := link()
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	frame, err := hex.DecodeString(args[0])
	if err != nil {
		return "", err
	}
	return "sent", unix.Sendto(fd, frame, 0, address)
}

// setMTU sets eth0's MTU.
func setMTU(args []string) (string, error) {
	fd, _, err := link()
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var mtu uint32
	if _, err := fmt.Sscan(args[0], &mtu); err != nil {
		return "", err
	}
	ifr, err := unix.NewIfreq("eth0")
	if err != nil {
		return "", err
	}
	ifr.SetUint32(mtu)
	return "set", unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr)
}

// received keeps the socket of the first "recv arm" for the "recv take" after.
var received = -1

// receiveFrame gets one frame of our type: "recv arm" opens the socket so that
// nothing is missed, "recv take" waits for the frame.
func receiveFrame(args []string) (string, error) {
	if args[0] == "arm" {
		fd, _, err := link()
		received = fd
		return "armed", err
	}
	frame := make([]byte, 65536)
	n, _, err := unix.Recvfrom(received, frame, 0)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", frame[:n]), nil
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

func up(fd int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return up(fd, "lo")
}
