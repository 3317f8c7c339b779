package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI1_EveryFlowKindIsAudited has flows of every kind, let through and denied, and all that the audit log holds of
// them in the end: a line at the beginning and, of those let through, one at the end.
func TestI1_EveryFlowKindIsAudited(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, `
[[egress.allow]]
name = "git"
hosts = ["git.example"]
protocol = "tcp"
ports = [22]
[[egress.allow]]
name = "time"
cidrs = ["93.184.215.14/32"]
protocol = "udp"
ports = [123]
[[egress.allow]]
name = "ping"
hosts = ["git.example"]
protocol = "icmp"
[[egress.allow]]
name = "tls"
hosts = ["tls.example"]
protocol = "tls"
ports = [443]
[hosts]
"echo.msb.internal" = "builtin:echo"
`)
	w.Record("git.example. 60 IN A " + site)
	w.Record("tls.example. 60 IN A " + other)
	w.Serve(site+":22", func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	w.ServeUDP(site+":123", func(b []byte) []byte { return append([]byte("re: "), b...) })
	serveTLS(w, other+":443", "hello", "tls.example")
	w.AnswerPings(siteAddr)
	git, mapped := w.Lookup("git.example"), w.Lookup("echo.msb.internal")

	c, err := w.Dial(git, 22)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "SSH-2.0-x\r\n" {
		t.Errorf("%q, %v", b, err)
	}
	_ = c.Close()
	datagrams, err := w.Guest.DialUDP(netip.MustParseAddrPort(site + ":123"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	_ = datagrams.SetDeadline(time.Now().Add(60 * time.Second))
	_, _ = datagrams.Write([]byte("time?"))
	if n, err := datagrams.Read(make([]byte, 64)); n != 9 {
		t.Errorf("%d bytes, %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := w.Guest.Ping(ctx, git, []byte("1234")); err != nil {
		t.Error(err)
	}
	denied, enough := context.WithCancel(ctx)
	var pinging sync.WaitGroup
	pinging.Go(func() { _ = w.Guest.Ping(denied, siteAddr.Next(), nil) }) // it has no answer
	w.Audit.Wait(t, audit.FlowOpen, 4)
	enough()
	pinging.Wait()
	if resp, err := w.Client().Get("https://tls.example/"); err != nil {
		t.Error(err)
	} else {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if c, err = w.Dial(mapped, 9); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for _, dst := range []string{"10.0.0.1:443", site + ":443"} {
		if c, err := w.Dial(netip.MustParseAddrPort(dst).Addr(), netip.MustParseAddrPort(dst).Port()); err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", dst)
		}
	}
	w.Close()
	var got []string
	for _, e := range slices.Concat(w.Audit.Events(audit.FlowOpen), w.Audit.Events(audit.FlowClose)) {
		line := fmt.Sprintf("%s %s %s %s:%d names=%s sni=%s host=%s target=%s", e.Kind, e.Action, e.Proto, e.Dst, e.Port, strings.Join(e.Names, ","), e.SNI, e.Host, e.Target)
		if e.Kind == audit.FlowOpen {
			line += fmt.Sprintf(" rule=%s %s class=%s", e.Rule, e.Reason, e.Class)
		} else if e.Port != 443 { // what TLS takes varies
			line += fmt.Sprintf(" up=%d down=%d", e.BytesUp, e.BytesDown)
		}
		got = append(got, line)
		if e.Flow == 0 || (e.SrcPort == 0) != (e.Proto == "icmp") || e.Kind == audit.FlowClose && e.Duration <= 0 || e.Sandbox == "" || e.Kind == audit.FlowOpen && e.Message == "" {
			t.Errorf("%+v", e)
		}
	}
	slices.Sort(got)
	want := strings.TrimSpace(`
flow.close  icmp 93.184.215.14:0 names=git.example sni= host= target= up=4 down=4
flow.close  tcp 198.18.1.0:9 names=echo.msb.internal sni= host= target=builtin:echo up=0 down=0
flow.close  tcp 93.184.215.14:22 names=git.example sni= host= target= up=5 down=11
flow.close  tcp 93.184.215.99:443 names=tls.example sni=tls.example host= target=
flow.close  udp 93.184.215.14:123 names=git.example sni= host= target= up=5 down=9
flow.open allow icmp 93.184.215.14:0 names=git.example sni= host= target= rule=ping rule class=
flow.open allow tcp 198.18.1.0:9 names=echo.msb.internal sni= host= target=builtin:echo rule=hosts.echo.msb.internal hosts class=benchmark
flow.open allow tcp 93.184.215.14:22 names=git.example sni= host= target= rule=git rule class=
flow.open allow tcp 93.184.215.99:443 names=tls.example sni=tls.example host= target= rule=tls rule class=
flow.open allow udp 93.184.215.14:123 names=git.example sni= host= target= rule=time rule class=
flow.open deny icmp 93.184.215.15:0 names= sni= host= target= rule= no_rule class=
flow.open deny tcp 10.0.0.1:443 names= sni= host= target= rule= special_address class=private
flow.open deny tcp 93.184.215.14:443 names=git.example sni= host= target= rule=time port_not_allowed class=`)
	if got := strings.Join(got, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
