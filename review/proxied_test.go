package review_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

const proxyPolicy = `
[[egress.allow]]
name = "opaque"
hosts = ["opaque.example"]
ports = [9]
protocol = "tcp"

[[egress.allow]]
name = "plain"
hosts = ["plain.example"]
ports = [80]
protocol = "http"
paths = ["/open/**"]
`

// proxyRequests are requests to the explicit proxy, each with the answer's status and the comment that its
// connection must have in the capture.
var proxyRequests = []struct {
	request, status string
	comment         []string
}{
	{"CONNECT opaque.example:9 HTTP/1.1\r\n\r\n", "200", []string{"action=allow", "rule=opaque", "name=opaque.example", `to="93.184.215.20:9"`}},
	{"CONNECT opaque.example:10 HTTP/1.1\r\n\r\n", "403", []string{"action=deny", "reason=port_not_allowed", `to="93.184.215.20:10"`}},
	{"CONNECT evil.example:443 HTTP/1.1\r\n\r\n", "403", []string{"action=deny", "reason=no_rule", "name=evil.example", `to="evil.example:443"`}},
	{"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n", "403", []string{"action=deny", "reason=special_address", `to="10.0.0.1:443"`}},
	{"GET http://plain.example/open/x HTTP/1.1\r\n\r\n", "200", []string{"action=inspect", "rule=plain", "name=plain.example", `to="93.184.215.21:80"`}},
	{"GET http://127.1/ HTTP/1.1\r\n\r\n", "400", []string{"action=deny", "reason=unreadable"}},
}

// recordProxied captures a guest that uses the gateway's proxy. It returns the guest's ports, one for each
// of proxyRequests.
func recordProxied(t *testing.T) (file []byte, ports []uint16) {
	t.Helper()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Options{})
	c := gateway.NewCaptureTap()
	c.Start(w)
	world := gatewaytest.StartWith(t, gatewaytest.Policy(t, proxyPolicy), func(cfg *gateway.Config) { cfg.Capture = c })
	world.Record("opaque.example. 60 IN A 93.184.215.20", "plain.example. 60 IN A 93.184.215.21")
	world.Serve("93.184.215.20:9", func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	world.ServeHTTP("93.184.215.21:80", http.NewServeMux())
	for _, a := range proxyRequests {
		conn, err := world.Dial(world.Gateway.Link().Gateway4, gateway.ProxyPort)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		if _, err := io.WriteString(conn, a.request); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if want := map[bool]string{true: "404", false: a.status}[strings.HasPrefix(a.request, "GET http://plain")]; err != nil || !strings.Contains(line, want) {
			t.Errorf("%q: %q, %v; want %s", a.request, line, err, want)
		}
		ports = append(ports, conn.LocalAddr().(*net.TCPAddr).AddrPort().Port())
		_ = conn.Close()
	}
	world.Audit.Wait(t, audit.FlowOpen, len(proxyRequests)-1) // the denied name is a question's line
	c.Start(nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), ports
}

// commentsTo gathers the comments on the packets of connections to the explicit proxy by the guest's port.
func commentsTo(t *testing.T, file []byte) map[uint16]string {
	t.Helper()
	all := map[uint16]string{}
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err != nil || rec.Kind != capture.PacketRecord {
			continue
		}
		h, ok := capture.Decode(rec.Frame)
		switch proxy := netip.AddrPortFrom(netip.MustParseAddr("192.168.127.1"), gateway.ProxyPort); {
		case ok && h.Dst == proxy:
			all[h.Src.Port()] += strings.Join(rec.Comments, "\n")
		case ok && h.Src == proxy: // a verdict that came late is on the connection's next packet
			all[h.Dst.Port()] += strings.Join(rec.Comments, "\n")
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return all
}

func TestI1_ProxyVerdictsAnnotateClientPackets(t *testing.T) {
	t.Parallel()
	file, ports := recordProxied(t)
	comments := commentsTo(t, file)
	for i, a := range proxyRequests {
		for _, want := range a.comment {
			if !strings.Contains(comments[ports[i]], want) {
				t.Errorf("%q: the comments are %q, want %s in them", a.request, comments[ports[i]], want)
			}
		}
	}
}

func TestProxyRequestsAreReviewedAsJudged(t *testing.T) {
	t.Parallel()
	file, ports := recordProxied(t)
	same := read(t, file, review.Options{Policy: gatewaytest.Policy(t, proxyPolicy)})
	byPort := map[uint16]review.Flow{}
	for f := range same.Flows() {
		byPort[f.Src.Port()] = f
	}
	for i, a := range proxyRequests {
		f := byPort[ports[i]]
		if f.Verdict == nil || f.Recorded == nil || f.Verdict.Action != f.Recorded.Action || f.Verdict.Reason != f.Recorded.Reason || f.Verdict.Rule != f.Recorded.Rule {
			t.Errorf("%q: recorded %+v, reviewed %+v; want the same", a.request, f.Recorded, f.Verdict)
		}
		target := strings.Fields(a.request)[1]
		if readable := a.status != "400" && strings.HasPrefix(a.request, "CONNECT"); readable && f.ProxyTarget != target {
			t.Errorf("%q: asked for %q", a.request, f.ProxyTarget)
		}
	}
	if n := same.Count(review.IsChanged); n != 0 {
		t.Errorf("%d verdicts changed under the same policy: %q", n, same.Rows(true))
	}
	if !slices.ContainsFunc(same.Requests, func(q review.Request) bool { return q.Path == "/open/x" && q.Verdict.Action == "allow" }) {
		t.Errorf("requests: %+v, want the one to /open/x", same.Requests)
	}
	// The name, the other port and the address of a name that a stricter policy does not know any more.
	open := read(t, file, review.Options{Policy: gatewaytest.Policy(t, "[egress]\ndefault = \"public\"\n")})
	if n := open.Count(review.Loosened); n != 2 {
		t.Errorf("%d loosened under default = public, want the other port and the name: %q", n, open.Rows(true))
	}
	strict := read(t, file, review.Options{Policy: gatewaytest.Policy(t, "")})
	if n := strict.Count(review.Tightened); n != 2 {
		t.Errorf("%d tightened under an empty policy, want both that were let out: %q", n, strict.Rows(true))
	}
}

// TestProxyRequestsAreLearned: only the target belongs into a policy, not the gateway's address.
func TestProxyRequestsAreLearned(t *testing.T) {
	t.Parallel()
	file, _ := recordProxied(t)
	learned := string(read(t, file, review.Options{Policy: gatewaytest.Policy(t, ""), Learn: true}).Learned())
	for want, there := range map[string]bool{"opaque.example": true, "plain.example": true, "192.168.127.1": false} {
		if strings.Contains(learned, "\""+want) != there {
			t.Errorf("%q in what was learned: want %v\n%s", want, there, learned)
		}
	}
}

// TestI16_BytesBehindACONNECTAreDenied unless the gateway's answer says that it had not read them with the request.
func TestI16_BytesBehindACONNECTAreDenied(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"HTTP/1.1 200 Connection established\r\n\r\n": "allow rule",
		"HTTP/1.1 400 Bad Request\r\n\r\n":            "deny unreadable",
		"":                                            "deny unreadable",
	} {
		c := pcapgen.Impatient(answer)
		file, _ := c.Capture()
		for f := range reviewed(t, &c, file).Flows() {
			if got := f.Verdict; f.Proto == "tcp" && got.Action+" "+got.Reason != want {
				t.Errorf("answered %q: %s %s, want %s", answer, got.Action, got.Reason, want)
			}
		}
	}
}
