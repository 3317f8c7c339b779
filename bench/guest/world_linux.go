package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/secretproxy/ca"
)

const (
	worldAddress = "93.184.216.34" // nothing is sent there: a namespace of ours has it
	nearEnd      = "10.77.0.1/30"
	farEnd       = "10.77.0.2"
	apiHost      = "api.bench.example"
	zone         = "names.bench.example."
	authority    = "ca.pem"
	secretValue  = "the-real-value-of-the-bench"
)

// startWorld makes the namespace of the servers, starts them, and leaves their authority's certificate in dir. All that this
// process starts asks their name server.
func startWorld(dir string) (stop func(), err error) {
	roots, err := ca.New("bench world")
	if err != nil {
		return nil, err
	}
	leaf, err := roots.ForName(hostname.MustParse(apiHost))
	if err != nil {
		return nil, err
	}
	resolv := filepath.Join(dir, "resolv.conf")
	err = errors.Join(os.WriteFile(filepath.Join(dir, authority), roots.CertPEM(), 0o644),
		os.WriteFile(resolv, []byte("nameserver "+worldAddress+"\n"), 0o644),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(resolv, "/etc/resolv.conf", "", unix.MS_BIND, ""))
	if err != nil {
		return nil, err
	}
	world, err := netstacktest.OpenNamespace()
	if err != nil {
		return nil, err
	}
	var names net.PacketConn
	var requests net.Listener
	err = connect(world)
	if err == nil {
		err = world.Do(func() (err error) {
			if names, err = net.ListenPacket("udp", worldAddress+":53"); err != nil {
				return err
			}
			requests, err = net.Listen("tcp", worldAddress+":443")
			return err
		})
	}
	if err != nil {
		world.Close()
		return nil, err
	}
	resolver := &dns.Server{PacketConn: names, Handler: dns.HandlerFunc(answerName)}
	server := &http.Server{
		Handler: http.HandlerFunc(answerRequest), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = resolver.ActivateAndServe() }()
	go func() { _ = server.ServeTLS(requests, "", "") }()
	return func() { _, _ = resolver.Shutdown(), server.Close(); world.Close() }, nil
}

// connect lays a link from this namespace to the world's.
func connect(world *netstacktest.TapGuest) error {
	ns, err := os.Open(world.Path())
	if err != nil {
		return err
	}
	defer ns.Close()
	return errors.Join(
		netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far", PeerNamespace: netlink.NsFd(ns.Fd())}),
		setUp("lo", ""), setUp("near", nearEnd),
		world.Do(func() error { return errors.Join(setUp("lo", worldAddress+"/32"), setUp("far", farEnd+"/30")) }),
		netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(farEnd)}))
}

func setUp(device, address string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if address != "" {
		addr, err := netlink.ParseAddr(address)
		if err == nil {
			err = netlink.AddrAdd(link, addr)
		}
		if err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

func answerName(w dns.ResponseWriter, question *dns.Msg) {
	answer := new(dns.Msg)
	answer.SetReply(question)
	if q := question.Question[0]; q.Qtype == dns.TypeA {
		answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass, Ttl: 60}, A: net.ParseIP(worldAddress)}}
	}
	_ = w.WriteMsg(answer)
}

// answerRequest tells whether the request had the secret's value.
func answerRequest(w http.ResponseWriter, r *http.Request) {
	got := "another value"
	if r.Header.Get("Authorization") == "Bearer "+secretValue {
		got = "the value"
	}
	_, _ = io.WriteString(w, got)
}
