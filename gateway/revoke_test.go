package gateway_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// The end of a connection that is looked into must not pass for the end of an answer.
func TestReloadsResetInspectedConnections(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\n")
	w.Record("web.example.com. 60 IN A " + site)
	w.ServeHTTP(site+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}))
	addr := w.Lookup("web.example.com")
	conns := make([]net.Conn, 16)
	for i := range conns {
		c, err := w.Dial(addr, 80)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	if err := w.Gateway.Reload(gatewaytest.Policy(t, "")); err != nil {
		t.Fatal(err)
	}
	for i, c := range conns { // the server's answers don't end by themselves
		if _, err := io.Copy(io.Discard, c); err == nil || !strings.Contains(err.Error(), "reset") && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d ended with %v, want a reset", i, err)
		}
	}
}

func TestI5_ReportModeStillRefusesRebinding(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[egress]\nmode = \"report\"\n")
	w.Record("inside.example.com. 60 IN A 10.0.0.1")
	if m := w.Resolve("inside.example.com", dns.TypeA); m.Rcode != dns.RcodeRefused {
		t.Errorf("got %v, want REFUSED", m)
	}
	if e := w.Audit.Wait(t, audit.DNSQuery, 1)[0]; e.Action != "deny" || e.WouldDeny {
		t.Errorf("audit line %+v, want a plain denial", e)
	}
}

// A connection that stays allowed may carry a request that no longer is.
func TestI16_ReloadEndsForbiddenRequests(t *testing.T) {
	t.Parallel()
	rule := func(methods string) string {
		return "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\nmethods = [" + methods + "]\n"
	}
	w := gatewaytest.Start(t, rule(`"GET", "PUT"`))
	w.Record("web.example.com. 60 IN A " + site)
	answer := make(chan struct{})
	w.ServeHTTP(site+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	addr := w.Lookup("web.example.com")
	begin := func(method string) net.Conn {
		c, err := w.Dial(addr, 80)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = io.WriteString(c, method+" / HTTP/1.1\r\nHost: web.example.com\r\nConnection: close\r\n\r\n")
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	put, get := begin("PUT"), begin("GET")
	if err := w.Gateway.Reload(gatewaytest.Policy(t, rule(`"GET"`))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, put); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("a PUT that the new policy forbids goes on: %v", err)
	}
	close(answer)
	if _, err := io.Copy(io.Discard, get); err != nil {
		t.Errorf("a GET that the new policy allows ended with %v", err)
	}
}

// A flow to an address that was resolved ends when [hosts] gives its name a target: nothing else may be behind it.
func TestI16_ReloadsEndRemappedFlows(t *testing.T) {
	t.Parallel()
	const tcp = "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"tcp\"\nports = [80]\n"
	const web = "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\n"
	for name, rule := range map[string]string{"relayed": tcp, "inspected": web, "by default": "[egress]\ndefault = \"public\"\n"} {
		for host, ends := range map[string]bool{"web.example.com": true, "other.example.com": false} {
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				w := gatewaytest.Start(t, rule)
				w.Record("web.example.com. 60 IN A " + site)
				w.ServeHTTP(site+":80", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "hello") }))
				c, err := w.Dial(w.Lookup("web.example.com"), 80)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(60 * time.Second))
				answers := bufio.NewReader(c)
				ask := func() error {
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
					resp, err := http.ReadResponse(answers, nil)
					if err != nil {
						return err
					}
					if resp.StatusCode != http.StatusOK { // it came between the end of the flow and its reset
						err = errors.New(resp.Status)
					}
					_, copyErr := io.Copy(io.Discard, resp.Body)
					return errors.Join(err, copyErr, resp.Body.Close())
				}
				if err := ask(); err != nil {
					t.Fatal(err)
				}
				if err := w.Gateway.Reload(gatewaytest.Policy(t, rule+"[hosts]\n\""+host+"\" = \"127.0.0.1:7\"\n")); err != nil {
					t.Fatal(err)
				}
				err = ask()
				for n := 0; ends && err == nil && n < 1000; n++ { // the reset comes from another goroutine
					err = ask()
				}
				if (err != nil) != ends {
					t.Errorf("after %s has a target: %v; want the flow ended: %v", host, err, ends)
				}
			})
		}
	}
}
