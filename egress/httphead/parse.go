package httphead

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// MaxBytes bounds the head that is read before a verdict: the largest that common servers take.
const MaxBytes = 16 << 10

// maxMethod is longer than every registered method (IANA: UPDATEREDIRECTREF has 17 letters).
const maxMethod = 20

var (
	// ErrIncomplete says that the bytes are a good beginning and more must be read.
	ErrIncomplete = errors.New("the request's head goes on")
	// ErrNotHTTP says that the bytes are no HTTP/1 request.
	ErrNotHTTP = errors.New("not an HTTP/1 request")
	// ErrMalformed says that the head can't be read unambiguously.
	ErrMalformed = errors.New("malformed HTTP request head")
)

// Head is what a request says of its destination.
type Head struct {
	Method string
	// Host is the name in the Host header; zero when there is none or when it is an address.
	Host hostname.Name
	// Addr is the Host header's literal address, if it is one.
	Addr netip.Addr
}

// Parse reads the head at the start of b. ErrIncomplete asks for more bytes; other errors are final.
func Parse(b []byte) (Head, error) {
	method, err := parseMethod(b)
	if err != nil {
		return Head{}, err
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	head := b
	if end >= 0 {
		head = b[:end]
	}
	switch {
	case bareLineFeed(head):
		return Head{}, fmt.Errorf("%w: bare line feed", ErrMalformed)
	case len(head) > MaxBytes:
		return Head{}, fmt.Errorf("%w: it is over 16 KiB", ErrMalformed)
	case end < 0:
		return Head{}, ErrIncomplete
	}
	lines := strings.Split(string(b[:end]), "\r\n")
	if err := checkRequestLine(lines[0]); err != nil {
		return Head{}, err
	}
	return parseHost(method, lines[1:])
}

func parseMethod(b []byte) (string, error) {
	for i, c := range b {
		switch {
		case c == ' ' && i > 0:
			return string(b[:i]), nil
		case i >= maxMethod, (c < 'A' || c > 'Z') && c != '-' && c != '_':
			return "", ErrNotHTTP
		}
	}
	return "", ErrIncomplete
}

func checkRequestLine(line string) error {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/") {
		return ErrNotHTTP
	}
	if parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return fmt.Errorf("%w: version %.10q", ErrMalformed, parts[2])
	}
	if !strings.HasPrefix(parts[1], "/") && parts[1] != "*" {
		return fmt.Errorf("%w: the target must be a path", ErrMalformed)
	}
	return nil
}

func parseHost(method string, lines []string) (Head, error) {
	head := Head{Method: method}
	seen := false
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t\x00\r") {
			return Head{}, fmt.Errorf("%w: a line that is no header", ErrMalformed)
		}
		if !strings.EqualFold(name, "host") {
			continue
		}
		if seen {
			return Head{}, fmt.Errorf("%w: two Host headers", ErrMalformed)
		}
		seen = true
		if err := head.setHost(strings.Trim(value, " \t")); err != nil {
			return Head{}, err
		}
	}
	return head, nil
}

func (h *Head) setHost(s string) error {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		h.Addr = addr
		return nil
	}
	name, err := hostname.Parse(s)
	if err != nil {
		return fmt.Errorf("%w: Host: %w", ErrMalformed, err)
	}
	h.Host = name
	return nil
}

// bareLineFeed reports an LF without a CR before it: some parsers end a line there.
func bareLineFeed(b []byte) bool {
	for i, c := range b {
		if c == '\n' && (i == 0 || b[i-1] != '\r') {
			return true
		}
	}
	return false
}
