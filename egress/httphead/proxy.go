package httphead

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// MaxProxyBytes bounds the head of a request to the explicit proxy; it is secretproxy's bound for the same head.
const MaxProxyBytes = 64 << 10

// ErrProxy is wrapped by everything that is wrong with a request to the explicit proxy.
var ErrProxy = errors.New("the request to the proxy can't be read without guessing")

// ProxyRequest is what a client asked of the explicit proxy.
type ProxyRequest struct {
	Connect bool
	Name    hostname.Name // zero where the client wrote an address
	Addr    netip.Addr
	Port    uint16
	// Length is how many bytes its head has.
	Length int
	// Head is the request's head as its server is to see it: origin form, one Host, the last request of
	// its connection. It is nil for CONNECT.
	Head []byte
}

// Target is what was asked for, "api.example.com:443".
func (r *ProxyRequest) Target() string {
	if r.Name.IsZero() {
		return netip.AddrPortFrom(r.Addr, r.Port).String()
	}
	return r.Name.String() + ":" + strconv.Itoa(int(r.Port))
}

// ParseProxy reads the request to the explicit proxy at the start of b. ErrIncomplete asks for more bytes;
// every other error wraps ErrProxy and is final. What comes out doesn't depend on how the bytes were cut into
// pieces.
func ParseProxy(b []byte) (ProxyRequest, error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	switch {
	case end > MaxProxyBytes || end < 0 && len(b) > MaxProxyBytes:
		return ProxyRequest{}, badProxyHead("its head is larger than 64 KiB")
	case len(b) > 0 && (b[0] < 'A' || b[0] > 'Z'):
		return ProxyRequest{}, badProxyHead("it is not HTTP")
	case end < 0:
		return ProxyRequest{}, ErrIncomplete
	}
	end += len("\r\n\r\n")
	r, err := parseProxyHead(b[:end])
	if err == nil && r.Connect && len(b) > end {
		err = badProxyHead("bytes follow a CONNECT before its answer")
	}
	r.Length = end
	return r, err
}

// badProxyHead says what is wrong. The text holds no byte of the request.
func badProxyHead(what string) error { return fmt.Errorf("%w: %s", ErrProxy, what) }

// parseProxyHead reads a head that ends in an empty line (RFC 9112, sections 3.2.2 and 3.2.3). What
// recipients may repair is an error here: a proxy that repairs differently from the server behind it is
// how one request becomes two.
func parseProxyHead(head []byte) (ProxyRequest, error) {
	first, fields, fault := parseLines(bytes.TrimSuffix(head, []byte("\r\n")))
	if fault != nil {
		return ProxyRequest{}, badProxyHead(fault.Message)
	}
	f, err := sortFields(fields)
	if err != nil {
		return ProxyRequest{}, err
	}
	if first.Method == http.MethodConnect {
		return parseConnect(first.Target, f)
	}
	return parseAbsolute(first, f)
}

// proxyFields are the header fields of a request to the proxy.
type proxyFields struct {
	hosts  []string
	framed bool     // it announces a body
	pass   []string // lines that the server gets
}

func sortFields(fields []field) (proxyFields, error) {
	var f proxyFields
	for _, field := range fields {
		switch field.name {
		case "host":
			f.hosts = append(f.hosts, field.value)
			continue
		case "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive":
			continue // between the client and us
		case "content-length", "transfer-encoding":
			f.framed = f.framed || field.value != "0"
		}
		f.pass = append(f.pass, field.line)
	}
	if len(f.hosts) > 1 {
		return f, badProxyHead("it has two Host fields")
	}
	return f, nil
}

// agrees reports whether Host, where there is one, names the same server as the target. Clients leave
// the port out of it.
func (f *proxyFields) agrees(r *ProxyRequest) bool {
	if len(f.hosts) == 0 {
		return true
	}
	var said ProxyRequest
	err := said.setAuthority(f.hosts[0], r.Port)
	return err == nil && said.Name == r.Name && said.Addr == r.Addr && said.Port == r.Port
}

func parseConnect(target string, f proxyFields) (ProxyRequest, error) {
	r := ProxyRequest{Connect: true}
	if err := r.setAuthority(target, 0); err != nil {
		return r, err
	}
	if f.framed {
		return r, badProxyHead("a CONNECT has no body")
	}
	if !f.agrees(&r) {
		return r, badProxyHead("its Host is not its target")
	}
	return r, nil
}

func parseAbsolute(first RequestLine, f proxyFields) (ProxyRequest, error) {
	const scheme = "http://"
	target := first.Target
	r := ProxyRequest{}
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return r, badProxyHead("its target is neither http://HOST/PATH nor, with CONNECT, HOST:PORT; https goes by CONNECT")
	}
	authority, path := target[len(scheme):], ""
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	const httpPort = 80
	if err := r.setAuthority(authority, httpPort); err != nil {
		return r, err
	}
	if !f.agrees(&r) {
		return r, badProxyHead("its Host is not its target's")
	}
	switch {
	case path == "" && first.Method == http.MethodOptions:
		path = "*" // RFC 9112, section 3.2.4
	case !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	var head bytes.Buffer
	version := "1.1"
	if first.HTTP10 {
		version = "1.0"
	}
	head.WriteString(first.Method + " " + path + " HTTP/" + version + "\r\nHost: " + authority + "\r\n")
	for _, line := range f.pass {
		head.WriteString(line + "\r\n")
	}
	// Another request on the connection could name another server, which this one was not judged for.
	head.WriteString("Connection: close\r\n\r\n")
	r.Head = head.Bytes()
	return r, nil
}

// setAuthority takes "host:port", and "host" where there is a default port. An address must stand in its
// one usual form: 127.1, 0x7f000001 and zone ids mean different things to different readers.
func (r *ProxyRequest) setAuthority(s string, defaultPort uint16) error {
	host, port, ok := splitPort(s)
	if !ok {
		return badProxyHead("its target is not HOST:PORT")
	}
	r.Port = defaultPort
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || port[0] == '+' {
			return badProxyHead("its port is not a number from 1 to 65535")
		}
		r.Port = uint16(n)
	}
	if r.Port == 0 {
		return badProxyHead("its target has no port")
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return badProxyHead("the address in brackets is not an IPv6 address without a zone")
		}
		r.Addr = addr
		return nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		r.Addr = addr
		return nil
	}
	name, err := hostname.Parse(host)
	if err != nil {
		return badProxyHead("its host is no host name, and no address in its usual form")
	}
	r.Name = name
	return nil
}

// splitPort splits "host", "host:port", "[v6]" and "[v6]:port" and takes nothing else.
func splitPort(s string) (host, port string, ok bool) {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", false
		}
		host, s = s[:end+1], s[end+1:]
		if s == "" {
			return host, "", true
		}
		port, ok = strings.CutPrefix(s, ":")
		return host, port, ok && port != ""
	}
	host, port, found := strings.Cut(s, ":")
	return host, port, host != "" && (!found || port != "")
}
