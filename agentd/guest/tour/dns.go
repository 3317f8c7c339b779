//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// codeEDE is the EDNS option of Extended DNS Errors (RFC 8914).
const codeEDE = 15

// resolverFrom reads the first name server, as C libraries do.
func resolverFrom(path string) netip.AddrPort {
	b, err := os.ReadFile(path)
	if err != nil {
		return netip.AddrPort{}
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			return netip.AddrPortFrom(a, 53)
		}
	}
	return netip.AddrPort{}
}

// dnsAnswer is what a resolver said about one name.
type dnsAnswer struct {
	rcode dnsmessage.RCode
	found bool
	text  string // of the Extended DNS Error
}

func (a dnsAnswer) String() string {
	name := strings.ToUpper(strings.TrimPrefix(a.rcode.String(), "RCode"))
	if a.rcode == dnsmessage.RCodeNameError {
		name = "NXDOMAIN"
	}
	if a.text == "" {
		return "DNS " + name
	}
	return "DNS " + name + ": " + a.text
}

// query asks for the IPv4 addresses of host.
func query(ctx context.Context, dialer *net.Dialer, server netip.AddrPort, host string) (dnsAnswer, error) {
	if !server.IsValid() {
		return dnsAnswer{}, errors.New("/etc/resolv.conf names no server")
	}
	conn, err := dialer.DialContext(ctx, "udp", server.String())
	if err != nil {
		return dnsAnswer{}, err
	}
	defer conn.Close()
	const id = 0x6d73
	msg, err := question(id, host)
	if err != nil {
		return dnsAnswer{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
		return dnsAnswer{}, err
	}
	if _, err := conn.Write(msg); err != nil {
		return dnsAnswer{}, err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		return dnsAnswer{}, err
	}
	return parseAnswer(id, buf[:n])
}

func question(id uint16, host string) ([]byte, error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, err
	}
	var opt dnsmessage.ResourceHeader
	if err := opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}},
	}
	return m.Pack()
}

func parseAnswer(id uint16, b []byte) (dnsAnswer, error) {
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		return dnsAnswer{}, fmt.Errorf("the answer: %w", err)
	}
	if m.ID != id || !m.Response {
		return dnsAnswer{}, errors.New("the answer is to another question")
	}
	a := dnsAnswer{rcode: m.RCode, found: m.RCode == dnsmessage.RCodeSuccess && len(m.Answers) > 0}
	for _, r := range m.Additionals {
		opt, ok := r.Body.(*dnsmessage.OPTResource)
		if !ok {
			continue
		}
		for _, o := range opt.Options {
			if o.Code == codeEDE && len(o.Data) > 2 {
				a.text = string(o.Data[2:])
			}
		}
	}
	return a, nil
}
