package httphead

import (
	"bytes"
	"errors"
	"fmt"
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

// Parse reads the head at the start of b and returns the name in its Host header; zero when there is none or when it
// is an address. ErrIncomplete asks for more bytes; other errors are final.
func Parse(b []byte) (hostname.Name, error) {
	if err := checkMethod(b); err != nil {
		return hostname.Name{}, err
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	head := b
	if end >= 0 {
		head = b[:end+len("\r\n")]
	}
	switch {
	case bareLineFeed(head):
		return hostname.Name{}, fmt.Errorf("%w: bare line feed", ErrMalformed)
	case len(head) > MaxBytes:
		return hostname.Name{}, fmt.Errorf("%w: it is over 16 KiB", ErrMalformed)
	case end < 0:
		return hostname.Name{}, ErrIncomplete
	}
	if first, _, _ := bytes.Cut(head, []byte("\r\n")); !bytes.Contains(first, []byte(" HTTP/")) {
		return hostname.Name{}, ErrNotHTTP
	}
	first, fields, fault := parseLines(head)
	switch {
	case fault != nil:
		return hostname.Name{}, fmt.Errorf("%w: %w", ErrMalformed, fault)
	case !strings.HasPrefix(first.Target, "/") && first.Target != "*":
		return hostname.Name{}, fmt.Errorf("%w: the target must be a path", ErrMalformed)
	}
	return parseHost(fields)
}

// checkMethod refuses what can't begin with a method.
func checkMethod(b []byte) error {
	for i, c := range b {
		switch {
		case c == ' ' && i > 0:
			return nil
		case i >= maxMethod, (c < 'A' || c > 'Z') && c != '-' && c != '_':
			return ErrNotHTTP
		}
	}
	return ErrIncomplete
}

func parseHost(fields []field) (hostname.Name, error) {
	var host hostname.Name
	seen := false
	for _, f := range fields {
		if f.name != "host" {
			continue
		}
		if seen {
			return hostname.Name{}, fmt.Errorf("%w: two Host headers", ErrMalformed)
		}
		seen = true
		said, _, ok := splitPort(f.value)
		if !ok && f.value != "" {
			return hostname.Name{}, fmt.Errorf("%w: Host is not HOST or HOST:PORT", ErrMalformed)
		}
		if _, err := netip.ParseAddr(strings.Trim(said, "[]")); err == nil {
			continue
		}
		name, err := hostname.Parse(said)
		if err != nil {
			return hostname.Name{}, fmt.Errorf("%w: Host: %w", ErrMalformed, err)
		}
		host = name
	}
	return host, nil
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
