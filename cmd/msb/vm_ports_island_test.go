//go:build vmtest

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack/netstacktest"
)

// answersAt reports whether a web server answers at an address, asked from another one, inside a namespace.
func answersAt(t *testing.T, ns *netstacktest.TapGuest, from, to string) (status string) {
	t.Helper()
	err := ns.Do(func() error {
		d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from + ":0"))}
		c, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(c, "GET /hostname HTTP/1.0\r\nHost: web\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		status = resp.Status
		return resp.Body.Close()
	})
	if err != nil {
		return err.Error()
	}
	return status
}

// TestI15_VMPortsForOtherMachines publishes a port of a real guest for some machines. Others don't reach it, nobody
// reaches one that was not published, and another sandbox reaches neither.
func TestI15_VMPortsForOtherMachines(t *testing.T) {
	i := newIsland(t)
	a := i.guest("[[ingress.allow]]\nname = \"friends\"\ncidrs = [\"45.33.32.0/24\"]\n", "-p", "0.0.0.0:8080:80")
	a.sh("httpd -p 80 -h /etc; httpd -p 81 -h /etc")
	const host, friend, stranger = "10.77.0.2", "45.33.32.156", "45.33.33.156"
	for _, c := range []struct {
		ns       *netstacktest.TapGuest
		from, to string
		ok       bool
	}{
		{i.Internet, friend, host + ":8080", true},
		{i.Host, "127.0.0.1", "127.0.0.1:8080", true},
		{i.Host, host, host + ":8080", true},
		{i.Internet, stranger, host + ":8080", false},
		{i.Internet, friend, host + ":81", false},
		{i.Host, "127.0.0.1", "127.0.0.1:81", false},
	} {
		if got := answersAt(t, c.ns, c.from, c.to); (got == "200 OK") != c.ok {
			t.Errorf("%s asks %s: %s, want an answer: %v", c.from, c.to, got, c.ok)
		}
	}
	b := i.guest("[egress]\ndefault = \"public\"\n")
	out := b.sh(`for a in 10.77.0.2:8080 93.184.214.7:8080 127.0.0.1:8080 192.168.127.1:8080 192.168.127.2:80; do wget -q -T 5 -O - http://$a/hostname && echo "REACHED $a"; done`)
	if strings.Contains(out, "REACHED") {
		t.Errorf("another sandbox says\n%s", out)
	}
	_ = b.in.Close()
	b.wait(t).want(t, 0, b.out.String())
	a.leave()
}
