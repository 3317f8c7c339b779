package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// Ports of the server, counted from its first.
const (
	portSink = iota
	portSource
	portEcho // one byte
	portUDP
	ports
)

const bulk = 256 << 10

// server listens on loopback, prints its first port, and ends with stdin.
func server() error {
	base, listeners, udp, err := listen()
	if err != nil {
		return err
	}
	go accept(listeners[portSink], func(c *net.TCPConn) {
		buf := make([]byte, bulk)
		for {
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
	})
	buf := make([]byte, bulk) // what all flows write: nobody changes it
	go accept(listeners[portSource], func(c *net.TCPConn) {
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	go accept(listeners[portEcho], func(c *net.TCPConn) {
		buf := make([]byte, 1)
		if _, err := c.Read(buf); err == nil {
			_, _ = c.Write(buf)
		}
	})
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	fmt.Println(base)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// listen finds consecutive free ports.
func listen() (int, []*net.TCPListener, *net.UDPConn, error) {
	loopback := net.IPv4(127, 0, 0, 1)
	for base := 20000; base < 30000; base += ports {
		var ls []*net.TCPListener
		for i := range portUDP {
			l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback, Port: base + i})
			if err != nil {
				break
			}
			ls = append(ls, l)
		}
		if len(ls) == portUDP {
			u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback, Port: base + portUDP})
			if err == nil {
				return base, ls, u, nil
			}
		}
		for _, l := range ls {
			_ = l.Close()
		}
	}
	return 0, nil, nil, fmt.Errorf("no free ports on loopback")
}

func accept(l *net.TCPListener, serve func(*net.TCPConn)) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			serve(c)
		}()
	}
}
