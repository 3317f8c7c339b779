package policies

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/msb-project/msb/hostname"
)

// Well-known ports of the kinds of resolver (RFC 1035, RFC 7858, RFC 8484).
const (
	portDNS    = 53
	portDoT    = 853
	portHTTPS  = 443
	portHTTP   = 80
	maxServers = 8 // each costs a time-out before the next one is asked
)

func (c *converter) dns(d *DNS, f *fileDNS) {
	if f.Servers != nil {
		c.scalar("dns.servers")
		d.Servers = nil
		if len(f.Servers) == 0 || len(f.Servers) > maxServers {
			c.add("dns.servers", fmt.Sprintf("%d servers", len(f.Servers)), fmt.Sprintf("name 1 to %d, or leave the key out for the host's own", maxServers))
		}
	}
	for i, text := range f.Servers {
		s, err := parseServer(text)
		if err != nil {
			c.addErr(fmt.Sprintf("dns.servers[%d]", i), err)
		}
		d.Servers = append(d.Servers, s)
	}
	c.duration("dns.min_ttl", f.MinTTL, &d.MinTTL)
	c.duration("dns.max_ttl", f.MaxTTL, &d.MaxTTL)
}

// duration reads a span of time into out, if the key is there.
func (c *converter) duration(key string, s *string, out *time.Duration) {
	if s == nil {
		return
	}
	c.scalar(key)
	d, err := parseDuration(*s)
	if err != nil {
		c.addErr(key, err)
		return
	}
	*out = d
}

// parseServer reads one entry of dns.servers.
func parseServer(s string) (Server, error) {
	if s == "system" {
		return Server{Kind: ServerSystem}, nil
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Server{}, fmt.Errorf("%q is not a resolver; write \"system\", \"udp://192.0.2.1\", \"tls://192.0.2.1#dns.example\" or \"https://dns.example/dns-query\"", s)
	}
	switch scheme {
	case "udp":
		addr, err := serverAddr(rest, portDNS)
		return Server{Kind: ServerUDP, Addr: addr}, err
	case "tls":
		text, name, _ := strings.Cut(rest, "#")
		if name == "" {
			return Server{}, fmt.Errorf("%q has no name to verify the certificate by; write \"tls://%s#dns.example\"", s, rest)
		}
		addr, err := serverAddr(text, portDoT)
		if err != nil {
			return Server{}, err
		}
		host, err := hostname.Parse(name)
		return Server{Kind: ServerTLS, Addr: addr, ServerName: host}, err
	case "https":
		return parseDoH(s)
	}
	return Server{}, fmt.Errorf("unknown kind of resolver %q; the kinds are udp, tls and https", scheme)
}

// serverAddr reads an address with or without a port. A name would have to be
// resolved before there is a resolver.
func serverAddr(s string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address; a resolver is named by address, such as \"192.0.2.1\" or \"[2001:db8::1]:53\"", s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

func parseDoH(s string) (Server, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return Server{}, fmt.Errorf("%q is not a DNS over HTTPS address; write \"https://dns.example/dns-query\"", s)
	}
	server := Server{Kind: ServerHTTPS, URL: s}
	port := uint16(portHTTPS)
	if u.Port() != "" {
		r, err := parsePorts(u.Port())
		if err != nil {
			return Server{}, err
		}
		port = r.First
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		server.Addr = netip.AddrPortFrom(a.Unmap(), port)
		return server, nil
	}
	server.ServerName, err = hostname.Parse(u.Hostname())
	return server, err
}

// checkVia checks the address of an upstream proxy.
func checkVia(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "":
		return fmt.Errorf("%q is not a proxy; write \"http://proxy.example:3128\"", s)
	case u.User != nil:
		return errors.New("it holds a user name or password; policies hold no secrets")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has more than a host and a port", s)
	}
	return nil
}
