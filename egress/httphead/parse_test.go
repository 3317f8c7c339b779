package httphead_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		host string
		want error
	}{
		"ordinary":               {"GET / HTTP/1.1\r\nHost: A.Example:80\r\n\r\n", "a.example", nil},
		"a body follows":         {"POST /x HTTP/1.1\r\nHost: a.example\r\n\r\nHost: b.example\r\n", "a.example", nil},
		"no Host":                {"GET / HTTP/1.0\r\nAccept: */*\r\n\r\n", "", nil},
		"Host is an address":     {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "", nil},
		"cut in the method":      {"GE", "", httphead.ErrIncomplete},
		"cut in a header":        {"GET / HTTP/1.1\r\nHost: a.ex", "", httphead.ErrIncomplete},
		"two Hosts":              {"GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n", "", httphead.ErrMalformed},
		"space before the colon": {"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", "", httphead.ErrMalformed},
		"folded Host":            {"GET / HTTP/1.1\r\nX: y\r\n Host: b.example\r\n\r\n", "", httphead.ErrMalformed},
		"bare line feeds":        {"GET / HTTP/1.1\nHost: a.example\n\n", "", httphead.ErrMalformed},
		"absolute form":          {"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"CONNECT":                {"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"HTTP/2 preface":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", httphead.ErrMalformed},
		"a head without end":     {"GET / HTTP/1.1\r\nX: " + strings.Repeat("a", httphead.MaxBytes), "", httphead.ErrMalformed},
		"SSH":                    {"SSH-2.0-OpenSSH_9.2\r\n", "", httphead.ErrNotHTTP},
		"binary":                 {"\x00\x01\x02", "", httphead.ErrNotHTTP},
		"SMTP":                   {"EHLO a.example\r\n\r\n", "", httphead.ErrNotHTTP},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := httphead.Parse([]byte(tt.in))
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %+v, %v; want error %v", got, err, tt.want)
			}
			var want hostname.Name
			if tt.host != "" {
				want = hostname.MustParse(tt.host)
			}
			if err == nil && got != want {
				t.Errorf("host %q, want %q", got, tt.host)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\nHost: a.example\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		host, err := httphead.Parse(b)
		if err == nil && strings.Count(strings.ToLower(string(b)), "host") == 0 && !host.IsZero() {
			t.Errorf("host %q out of a head that names none", host)
		}
	})
}
