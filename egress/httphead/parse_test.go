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
		"a method of 20 letters": {strings.Repeat("M", 20) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", nil},
		"a method of 21 letters": {strings.Repeat("M", 21) + " / HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrNotHTTP},
		"other characters":       {"A-Z_ / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", nil},
		"no method":              {" / HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrNotHTTP},
		"a head of 16 KiB":       {headOf(httphead.MaxBytes), "a.example", nil},
		"a head of 1 byte more":  {headOf(httphead.MaxBytes + 1), "", httphead.ErrMalformed},
		"the whole server":       {"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", nil},
		"a target without slash": {"GET x HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"a fragment":             {"GET /#x HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"a tab in the target":    {"GET /\tx HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"DEL in the target":      {"GET /\x7f HTTP/1.1\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"HTTP/1.2":               {"GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"an empty Host":          {"GET / HTTP/1.1\r\nHost: \r\n\r\n", "", httphead.ErrMalformed},
		"Host is an IPv4":        {"GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n", "", nil},
		"Host with a bad port":   {"GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", "", httphead.ErrMalformed},
		"Host is no name":        {"GET / HTTP/1.1\r\nHost: a..example\r\n\r\n", "", httphead.ErrMalformed},
		"Host behind others":     {"GET / HTTP/1.1\r\nX: y\r\nHost: a.example\r\nY: z\r\n\r\n", "a.example", nil},
		"an address, then Host":  {"GET / HTTP/1.1\r\nHost: [::1]\r\nHost: a.example\r\n\r\n", "", httphead.ErrMalformed},
		"a line of no name":      {"GET / HTTP/1.1\r\n: y\r\n\r\n", "", httphead.ErrMalformed},
		"a line without colon":   {"GET / HTTP/1.1\r\nX\r\n\r\n", "", httphead.ErrMalformed},
		"a fold by a tab":        {"GET / HTTP/1.1\r\nX: y\r\n\tz: b\r\n\r\n", "", httphead.ErrMalformed},
		"a tab in a value":       {"GET / HTTP/1.1\r\nX: y\tz\r\nHost:\ta.example\t\r\n\r\n", "a.example", nil},
		"a control in a value":   {"GET / HTTP/1.1\r\nX: y\x1fz\r\n\r\n", "", httphead.ErrMalformed},
		"DEL in a value":         {"GET / HTTP/1.1\r\nX: y\x7fz\r\n\r\n", "", httphead.ErrMalformed},
		"NUL in a value":         {"GET / HTTP/1.1\r\nX: y\x00z\r\n\r\n", "", httphead.ErrMalformed},
		"a bare return":          {"GET / HTTP/1.1\r\nX: y\rz\r\n\r\n", "", httphead.ErrMalformed},
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

// headOf is a head of n bytes, up to its empty line.
func headOf(n int) string {
	head := "GET / HTTP/1.1\r\nHost: a.example\r\nX: "
	return head + strings.Repeat("y", n-len(head)-2) + "\r\n\r\n"
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
