package review_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

const (
	diffSite  = "93.184.215.14" // web.example.com and api.example.com
	diffOther = "93.184.215.15" // other.example.com
	diffVia   = "[tls]\nvia = \"http://192.0.2.9:3128\"\n"
	byAddress = "[[egress.allow]]\nname = \"by address\"\ncidrs = [\"" + diffSite + "/32\"]\nprotocol = \"tcp\"\nports = [443]\n"
)

// clientTalk is what a guest's client does on one flow.
type clientTalk struct {
	proto  string // tcp, udp, icmp
	dst    netip.AddrPort
	pieces []string // of what a TCP client says
	// asks is a request to the explicit proxy, before the pieces.
	asks string
}

// truncatedHello begins a record that never ends.
const truncatedHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// TestI16_ReviewJudgesAsTheGatewayDid holds cases in which a review once came out differently from the gateway.
func TestI16_ReviewJudgesAsTheGatewayDid(t *testing.T) {
	t.Parallel()
	site := netip.MustParseAddrPort(diffSite + ":443")
	proxy := netip.MustParseAddrPort("192.168.127.1:3128")
	hello := []string{truncatedHello}
	for name, c := range map[string]struct {
		policy string
		talk   clientTalk
		want   string // action and reason
	}{
		"truncated hello to an upstream proxy": {byAddress + diffVia, clientTalk{dst: site, pieces: hello}, "deny unreadable"},
		"truncated hello without one":          {byAddress, clientTalk{dst: site, pieces: hello}, "allow rule"},
		"truncated hello in a tunnel to an upstream proxy": {
			byAddress + diffVia, clientTalk{dst: proxy, asks: "CONNECT " + diffSite + ":443 HTTP/1.1\r\n\r\n", pieces: hello}, "deny unreadable",
		},
		"bytes right behind a CONNECT": {
			byAddress, clientTalk{dst: proxy, asks: "CONNECT " + diffSite + ":443 HTTP/1.1\r\n\r\n" + truncatedHello}, "deny unreadable",
		},
		"a head that is refused before it ends": {
			"[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\n",
			clientTalk{dst: netip.MustParseAddrPort(diffSite + ":80"), pieces: []string{"GET /open/1 HTTP/1.1\r\nHost: web.example.com\r\n\r\n", "GET /%zz HTTP/1.1\r\nHo"}},
			"inspect needs_request",
		},
		"nothing to an upstream proxy": {byAddress + diffVia, clientTalk{dst: site}, "allow rule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDifference(t, c.policy)
			c.talk.proto = "tcp"
			d.talk(c.talk)
			e := d.Audit.Wait(t, audit.FlowOpen, 1)[0]
			if got := e.Action + " " + e.Reason; got != c.want {
				t.Errorf("the gateway said %q, want %q", got, c.want)
			}
			d.compare()
		})
	}
}

// TestI16_RandomFlowsAreReviewedAlike lets random clients loose on random policies.
func TestI16_RandomFlowsAreReviewedAlike(t *testing.T) {
	t.Parallel()
	compared := 0
	randomCases(t, 12, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		policy := randomPolicy(r)
		d := newDifference(t, policy)
		for range 10 {
			d.talk(randomTalk(r))
		}
		compared += d.compare()
		if t.Failed() {
			t.Log(policy)
		}
	})
	if compared == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d flows compared", compared)
}

// difference is a gateway that records what its guest does.
type difference struct {
	*gatewaytest.World
	t      *testing.T
	policy string
	path   string
	tap    *gateway.CaptureTap
	// port is the last one that the guest dialled TCP from: flows are told apart by it, and a port that the guest's
	// stack chose twice made two of one.
	port uint16
}

func newDifference(t *testing.T, policy string) *difference {
	t.Helper()
	d := &difference{t: t, policy: policy, path: filepath.Join(t.TempDir(), "all.pcapng"), tap: gateway.NewCaptureTap(), port: 20000}
	w, err := capture.Create(d.path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.tap.Start(w)
	d.World = gatewaytest.StartWith(t, gatewaytest.Policy(t, policy), func(cfg *gateway.Config) { cfg.Capture = d.tap })
	d.Record("web.example.com. 300 IN A "+diffSite, "api.example.com. 300 IN A "+diffSite, "other.example.com. 300 IN A "+diffOther,
		"inside.example.com. 300 IN A 10.0.0.1")
	d.AnswerPings(netip.MustParseAddr("93.184.215.99"))
	for _, addr := range []string{diffSite, diffOther} {
		for _, port := range []string{"443", "80", "22"} {
			d.Serve(addr+":"+port, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				_ = c.Close()
			})
		}
		d.ServeUDP(addr+":443", func(b []byte) []byte { return b })
		d.AnswerPings(netip.MustParseAddr(addr))
	}
	for _, name := range []string{"web.example.com", "api.example.com", "other.example.com", "inside.example.com", "mapped.internal"} {
		d.Resolve(name, 1)
	}
	return d
}

// talk lets one client do what it does, to its end.
func (d *difference) talk(k clientTalk) {
	d.t.Helper()
	before := len(d.Audit.Events(audit.FlowOpen))
	ctx, cancel := context.WithTimeout(d.t.Context(), 60*time.Second)
	defer cancel()
	switch k.proto {
	case "udp":
		d.port++ // one of its own: the guest's stack may choose one twice, and then it is one flow
		c, err := d.Guest.ListenUDP(d.port, k.dst.Addr())
		if err != nil {
			d.t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.WriteTo([]byte("datagram"), net.UDPAddrFromAddrPort(k.dst))
		d.Audit.Wait(d.t, audit.FlowOpen, before+1)
	case "icmp":
		var ping sync.WaitGroup
		ping.Go(func() { _ = d.Guest.Ping(ctx, k.dst.Addr(), []byte("ping")) })
		d.Audit.Wait(d.t, audit.FlowOpen, before+1)
		cancel() // of a denial a ping socket is not told
		ping.Wait()
	default:
		d.connect(ctx, k)
	}
}

func (d *difference) connect(ctx context.Context, k clientTalk) {
	d.t.Helper()
	d.port++
	c, err := d.Guest.DialTCPFrom(ctx, d.port, k.dst)
	if err != nil {
		return // refused
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if k.asks != "" {
		if _, err := io.WriteString(c, k.asks); err != nil {
			return
		}
		if strings.HasPrefix(k.asks, "CONNECT") {
			head := make([]byte, 4096)
			if n, _ := c.Read(head); !strings.HasPrefix(string(head[:n]), "HTTP/1.1 200") {
				_, _ = io.Copy(io.Discard, c)
				return
			}
		}
	}
	for _, piece := range k.pieces {
		if _, err := io.WriteString(c, piece); err != nil {
			break
		}
	}
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// compare ends the world and holds a review of its capture against its audit.
func (d *difference) compare() int {
	d.t.Helper()
	d.Close()
	if err := d.tap.Start(nil).Close(); err != nil {
		d.t.Fatal(err)
	}
	r, err := review.Run(d.t.Context(), review.Options{Captures: []string{d.path}, Policy: gatewaytest.Policy(d.t, d.policy)})
	if err != nil || len(r.Damage) > 0 {
		d.t.Fatal(err, r.Damage)
	}
	n := int(compare(d.t, d.Audit, r.Flows()))
	if live := verdictsOf(d.Audit); n != live {
		d.t.Errorf("%d flows have a verdict in both, of %d that the gateway judged", n, live)
	}
	compareRequests(d.t, d.Audit, r)
	return n
}

// clientHello is the first flight of a TLS client.
func clientHello(name string) string {
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(ours, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
	}()
	b := make([]byte, 16<<10)
	n, _ := theirs.Read(b)
	_ = theirs.Close()
	return string(b[:n])
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomPolicy is one that package policies takes.
func randomPolicy(r *rand.Rand) string {
	for {
		text := anyPolicy(r)
		if _, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil); err == nil {
			return text
		}
	}
}

func anyPolicy(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString(pick(r, "", "", "[egress]\ndefault = \"public\"\n", "[egress]\nmode = \"report\"\n"))
	for i := range 1 + r.IntN(5) {
		fmt.Fprintf(&b, "[[egress.%s]]\nname = \"rule %d\"\n", pick(r, "allow", "allow", "deny"), i)
		b.WriteString(pick(r,
			"hosts = [\"web.example.com\"]\nprotocol = \"https\"\n",
			"hosts = [\"web.example.com\", \"api.example.com\"]\nprotocol = \"tls\"\n",
			"hosts = [\"*.example.com\"]\nprotocol = \"http\"\n",
			"hosts = [\"api.example.com\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\n",
			"hosts = [\"web.example.com\"]\nprotocol = \"http\"\nmethods = [\"GET\"]\npaths = [\"/open/**\"]\n",
			"hosts = [\"other.example.com\"]\nprotocol = \"tcp\"\nports = [22, 443]\n",
			"cidrs = [\""+diffSite+"/32\"]\nprotocol = \"tcp\"\nports = [443, 80]\n",
			"cidrs = [\"93.184.215.0/24\"]\nprotocol = \"udp\"\nports = [443]\n",
			"cidrs = [\"93.184.215.0/24\"]\nprotocol = \"icmp\"\n",
		))
	}
	b.WriteString(pick(r, "", diffVia, "[tls]\ninspect = \"all\"\n", "[tls]\ninspect = \"none\"\n", "[tls]\nbypass = [\"api.example.com\"]\n"))
	b.WriteString(pick(r, "", "[hosts]\n\"mapped.internal\" = \"127.0.0.1:5000\"\n"))
	return b.String()
}

// malformed are requests that the strict check refuses, that net/http does, and that come through.
var malformed = []string{
	"GET /open/1 HTTP/1.1\r\nHost: web example\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: web.example.com\"\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost:\r\n\r\n",
	"GET /open/1 HTTP/1.1\r\nHost: web.example.com:http\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: [::1\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
	"GET /open/1 HTTP/1.1\r\nHost: web.example.com\r\nX: a\r\n b\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: web.example.com\r\nHost: web.example.com\r\n\r\n",
	"POST /open/1 HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n",
	"POST /open/1 HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "GET /open/1 HTTP/1.0\r\n\r\n", "get /open/1 HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
	"GET /open/1 HTTP/1.1\r\nHost: web.example.com\r\nExpect: 200-ok\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: web.example.com\r\n\r\n", "TRACE / HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
	"CONNECT web.example.com:80 HTTP/1.1\r\nHost: web.example.com\r\n\r\n", "CONNECT [::1 HTTP/1.1\r\nHost: web.example.com\r\n\r\n", "GET http://web.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
	"GET /a#b HTTP/1.1\r\nHost: web.example.com\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: web.example.com\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "GET /open/1 HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n",
}

func cutAnywhere(r *rand.Rand, s string) string { return s[:r.IntN(len(s))] }

func randomTalk(r *rand.Rand) clientTalk {
	addr := pick(r, diffSite, diffSite, diffOther, "10.0.0.1", "198.18.1.0", "93.184.215.99")
	port := pick(r, 443, 443, 80, 22)
	k := clientTalk{proto: pick(r, "tcp", "tcp", "tcp", "tcp", "udp", "icmp"), dst: netip.MustParseAddrPort(fmt.Sprint(addr, ":", port))}
	host := pick(r, "web.example.com", "api.example.com", "other.example.com", "evil.example", diffSite)
	if k.proto == "tcp" && r.IntN(3) == 0 {
		k.dst = netip.MustParseAddrPort("192.168.127.1:3128")
		target := fmt.Sprint(pick(r, host, addr), ":", port)
		k.asks = pick(r, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n", "GET http://"+target+"/open/x HTTP/1.1\r\n\r\n",
			"CONNECT "+target+"\r\n\r\n", "POST http://"+target+"/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
		if !strings.HasPrefix(k.asks, "CONNECT") {
			return k
		}
	}
	said := pick(r, "", "SSH-2.0-client\r\n", truncatedHello, clientHello(pick(r, "web.example.com", "api.example.com", "evil.example", "")),
		"GET /open/1 HTTP/1.1\r\nHost: "+host+"\r\n\r\nPOST /closed HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 2\r\n\r\nhi",
		"GET / HTTP/1.1\nHost: web.example.com\n\n", "GET / HTTP/1.1\r\nHost: "+host,
		"GET /open/1 HTTP/1.1\r\nHost: "+host+"\r\n\r\n"+cutAnywhere(r, "GET /open/2 HTTP/1.1\r\nHost: "+host+"\r\n\r\n"),
		pick(r, "", "GET /open/1 HTTP/1.1\r\nHost: "+host+"\r\n\r\n")+pick(r, malformed...)+pick(r, "", "GET /open/2 HTTP/1.1\r\nHost: web.example.com\r\n\r\n"))
	for len(said) > 0 {
		n := 1 + r.IntN(len(said))
		k.pieces, said = append(k.pieces, said[:n]), said[n:]
		if len(k.pieces) == 4 {
			k.pieces, said = append(k.pieces, said), ""
		}
	}
	return k
}
