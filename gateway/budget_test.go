package gateway_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// least is what each question, datagram and attempt takes from egress_bytes at least.
const least = 64

// TestI11_QuestionsTakeFromEgressBytes spends a budget by questions, and finds nothing else left.
func TestI11_QuestionsTakeFromEgressBytes(t *testing.T) {
	t.Parallel()
	const rules = "[[egress.allow]]\nhosts = [\"*.example.com\"]\nprotocol = \"https\"\n[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [9]\n"
	const budget, questions = 4 << 10, 4<<10/least + 10
	for _, limit := range []bool{true, false} {
		text := rules
		if limit {
			text += fmt.Sprintf("[limits]\negress_bytes = \"%d\"\n", budget)
		}
		w := gatewaytest.Start(t, text)
		answered := 0
		for i := range questions {
			if w.Resolve(fmt.Sprintf("n%d.example.com", i), dns.TypeTXT).Rcode != dns.RcodeRefused {
				answered++
			}
		}
		if limit != (answered < budget/least) || !limit && answered != questions {
			t.Errorf("budget %v: %d of %d questions went upstream", limit, answered, questions)
		}
		w.ServeHTTP(site+":9", http.NotFoundHandler())
		c, err := w.Dial(siteAddr, 9)
		if err == nil {
			_ = c.Close()
		}
		if limit != (err != nil) {
			t.Errorf("budget %v: a flow after the questions: %v", limit, err)
		}
	}
}

// TestI11_EmptyDatagramsTakeFromEgressBytes counts what arrives of a flood of them.
func TestI11_EmptyDatagramsTakeFromEgressBytes(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"udp\"\nports = [123]\n"
	const most = 1 << 10 / least
	for _, limit := range []string{"[limits]\negress_bytes = \"1K\"\n", ""} {
		w := gatewaytest.Start(t, rule+limit)
		var got atomic.Int64
		w.ServeUDP(site+":123", func([]byte) []byte { got.Add(1); return nil })
		c, err := w.Guest.DialUDP(netip.MustParseAddrPort(site + ":123"))
		if err != nil {
			t.Fatal(err)
		}
		over := func() bool { return len(w.Audit.Events(audit.FlowClose)) > 0 || limit == "" && got.Load() > most }
		for deadline := time.Now().Add(60 * time.Second); !over() && time.Now().Before(deadline); {
			_, _ = c.Write(nil)
		}
		_ = c.Close()
		if n := got.Load(); limit != "" && n > most || limit == "" && n <= most {
			t.Errorf("%q: %d empty datagrams arrived, %d fit", limit, n, most)
		}
	}
}

// TestI11_RefusedViaDialsCountAsEgress has the operator's proxy refuse each: it was told a target all the same.
func TestI11_RefusedViaDialsCountAsEgress(t *testing.T) {
	t.Parallel()
	const most, attempts = 2 << 10 / least, 2<<10/least + 10
	for _, limit := range []string{"[limits]\negress_bytes = \"2K\"\n", ""} {
		w := gatewaytest.Start(t, viaPolicy+limit)
		p := &corporate{status: "403 Forbidden"}
		p.serve(t, w, nil)
		client := w.Client()
		if tr, ok := client.Transport.(*http.Transport); ok {
			tr.TLSClientConfig.ServerName = "chosen.example.com"
		}
		for range attempts {
			if resp, err := client.Get("https://" + other + "/"); err == nil {
				_ = resp.Body.Close()
			}
		}
		if n := len(p.targets()); limit != "" && n >= most || limit == "" && n != attempts {
			t.Errorf("%q: the proxy was asked %d times in %d attempts", limit, n, attempts)
		}
	}
}

// TestI11_ConnectAttemptsCountAsEgress has each connection refused: an attempt alone carries information.
func TestI11_ConnectAttemptsCountAsEgress(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [9]\n"
	const most, attempts = 1 << 10 / least, 1<<10/least + 5
	for _, limit := range []string{"[limits]\negress_bytes = \"1K\"\n", ""} {
		w := gatewaytest.Start(t, rule+limit)
		for range attempts {
			if c, err := w.Guest.DialTCP(t.Context(), netip.MustParseAddrPort(site+":9")); err == nil {
				_ = c.Close()
			}
		}
		n := 0
		for _, addr := range w.Dialled() {
			if strings.Contains(addr, site+":9") {
				n++
			}
		}
		if limit != "" && n != most || limit == "" && n != attempts {
			t.Errorf("%q: %d of %d attempts left, %d fit", limit, n, attempts, most)
		}
	}
}
