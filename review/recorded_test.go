package review_test

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/review"
)

const (
	secretValue  = "real-value-9f86d081884c7d659a2feaa0c55ad015"
	recordPolicy = `
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
ports = [443]
protocol = "https"
methods = ["GET"]

[[egress.allow]]
name = "plain tcp"
cidrs = ["93.184.215.20/32"]
ports = [7]
protocol = "tcp"

[secrets.TOKEN]
from = "env:MSB_TEST_TOKEN"
hosts = ["api.example.com"]
in = ["header:Authorization"]
`
)

// recordSession captures a guest that uses an inspected API with a secret, an allowed TCP service, and a
// few things that are denied. It returns the capture's path and what the API's server was sent.
func recordSession(t *testing.T) (path string, token string) {
	t.Helper()
	t.Setenv("MSB_TEST_TOKEN", secretValue)
	path = filepath.Join(t.TempDir(), "session.pcapng")
	w, err := capture.Create(path, capture.Options{Comment: "sandbox test"})
	if err != nil {
		t.Fatal(err)
	}
	c := gateway.NewCaptureTap()
	c.Start(w)
	world := gatewaytest.StartWith(t, gatewaytest.Policy(t, recordPolicy), func(cfg *gateway.Config) { cfg.Capture = c })
	world.Record("api.example.com. 60 IN A 93.184.215.14")
	sent := make(chan string, 1)
	world.ServeHTTPS("93.184.215.14:443", world.CA.Certificate("api.example.com"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		_, _ = io.WriteString(rw, "you sent "+r.Header.Get("Authorization"))
	}))
	world.ServeHTTP("93.184.215.20:7", http.NotFoundHandler())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/visible/path", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+world.Gateway.Placeholders()["TOKEN"])
	res, err := world.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if conn, err := world.Dial(netip.MustParseAddr("93.184.215.20"), 7); err == nil {
		_ = conn.Close()
	}
	for _, denied := range []string{"10.0.0.1", "169.254.169.254", "93.184.215.99"} {
		if conn, err := world.Dial(netip.MustParseAddr(denied), 80); err == nil {
			_ = conn.Close()
			t.Errorf("%s was reached", denied)
		}
	}
	world.Resolve("evil.example", dns.TypeA)
	world.Audit.Wait(t, audit.FlowOpen, 5)
	if err := c.Start(nil).Close(); err != nil {
		t.Fatal(err)
	}
	return path, <-sent
}

// TestI8_CapturesHoldNoSecret records a session, has tshark decrypt it with the
// keys in the capture, and looks for the secret's value in all that tshark and the file have.
func TestI8_CapturesHoldNoSecret(t *testing.T) {
	path, sent := recordSession(t)
	if sent != "Bearer "+secretValue {
		t.Fatalf("the server got %q: the secret was not put in, so its absence would show nothing", sent)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear, complaints := tshark(t, "-n", "-r", path, "-Y", "http || http2", "-V", "-x")
	if complaints != "" {
		t.Errorf("tshark says %s", complaints)
	}
	for _, want := range []string{"/visible/path", "api.example.com"} {
		if !strings.Contains(clear, want) {
			t.Errorf("the decrypted session does not show %q; the keys in the capture are of no use:\n%.3000s", want, clear)
		}
	}
	all, _ := tshark(t, "-n", "-r", path, "-V", "-x")
	text := dumpText(all)
	for where, hay := range map[string]string{"the file": string(raw), "tshark's reading": all, "the decrypted bytes": text} {
		if strings.Contains(hay, secretValue) {
			t.Errorf("%s holds the secret's value", where)
		}
	}
}

// dumpText joins the characters of tshark's hex dumps, which break lines every 16 bytes.
func dumpText(dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		line = strings.TrimRight(line, "\n")
		if len(line) > 56 && line[4:6] == "  " {
			b.WriteString(line[56:])
		}
	}
	return b.String()
}

func TestVerdictsStandBesideTheirPackets(t *testing.T) {
	path, _ := recordSession(t)
	comments, _ := tshark(t, "-n", "-r", path, "-Y", "frame.comment", "-T", "fields", "-e", "ip.dst", "-e", "tcp.flags.syn", "-e", "frame.comment")
	first := 0
	for _, want := range []struct{ dst, text string }{
		{"93.184.215.14", "action=inspect"}, {"93.184.215.20", "action=allow"}, {"10.0.0.1", "reason=special_address"},
		{"169.254.169.254", "reason=metadata_address"}, {"93.184.215.99", "reason=no_rule"}, {"192.168.127.1", "name=evil.example"},
	} {
		found := false
		for line := range strings.Lines(comments) {
			if strings.HasPrefix(line, want.dst+"\t") && strings.Contains(line, want.text) {
				found = true
				if strings.Contains(line, "\t1\t") || strings.Contains(line, "\tTrue\t") {
					first++
				}
			}
		}
		if !found {
			t.Errorf("no packet to %s has the comment %s:\n%s", want.dst, want.text, comments)
		}
	}
	if first == 0 { // on a machine that stalls, a packet is on its way to the disk before its verdict
		t.Errorf("no verdict stands on a SYN:\n%s", comments)
	}
	names, _ := tshark(t, "-r", path, "-N", "nN", "-T", "fields", "-e", "ip.dst_host")
	if !strings.Contains(names, "api.example.com") {
		t.Errorf("tshark does not show the names of the capture:\n%.500s", names)
	}
}

func TestReviewsAgreeWithLiveVerdicts(t *testing.T) {
	path, _ := recordSession(t)
	same, err := review.Run(t.Context(), review.Options{Captures: []string{path}, Policy: gatewaytest.Policy(t, recordPolicy)})
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for f := range same.Flows() {
		if f.Recorded != nil && f.Verdict != nil {
			recorded++
		}
	}
	if n := same.Count(review.IsChanged); n != 0 || recorded < 5 {
		t.Errorf("%d of %d verdicts changed under the same policy: %q", n, recorded, same.Rows(true))
	}
	open, err := review.Run(t.Context(), review.Options{Captures: []string{path}, Policy: gatewaytest.Policy(t, "[egress]\ndefault = \"public\"\n")})
	if err != nil {
		t.Fatal(err)
	}
	for condition, want := range map[review.Condition]int{
		review.Loosened: 3, review.Tightened: 0, review.AllowedPrivate: 0, review.Unreadable: 0,
	} { // 93.184.215.99, the name evil.example, and the connection that nobody looks into any more
		if n := open.Count(condition); n != want {
			t.Errorf("%s: %d, want %d: %q", condition, n, want, open.Rows(true))
		}
	}
}

func TestCaptureIsSwitchedWhileRunning(t *testing.T) {
	t.Parallel()
	c := gateway.NewCaptureTap()
	world := gatewaytest.StartWith(t, gatewaytest.Policy(t, recordPolicy[:strings.Index(recordPolicy, "[secrets")]), func(cfg *gateway.Config) { cfg.Capture = c })
	world.Record("api.example.com. 60 IN A 93.184.215.14")
	var out bytes.Buffer
	for i := range 3 {
		w := capture.NewWriter(&out, capture.Options{})
		if i == 1 {
			c.Start(w)
		}
		world.Resolve("api.example.com", dns.TypeA)
		if i == 1 {
			c.Start(nil)
		}
		packets, _ := w.Stats()
		if got := packets > 0; got != (i == 1) {
			t.Errorf("round %d: %d packets", i, packets)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
