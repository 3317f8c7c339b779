package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy"
)

// httpsPort is the port on which a flow that no name decides about is taken for TLS.
const httpsPort = 443

// maxViaAnswer bounds the head of the upstream proxy's answer to a CONNECT.
const maxViaAnswer = 16 << 10

// errVia is what is wrong with the upstream proxy of [tls] via.
var errVia = secretproxy.ErrVia

// viaFor returns the upstream proxy for TLS to a destination that was judged; nil means that it is dialled
// directly. What the operator pointed at by address ([hosts], private rules) is near, and no affair of a
// proxy that leads outside.
func (g *Gateway) viaFor(f *flow) *url.URL {
	if f.Mapped || f.verdict.Special {
		return nil
	}
	text := g.policy.Load().TLS.Via
	if text == "" {
		return nil
	}
	via, err := url.Parse(text)
	if err != nil { // package policies refuses such a file
		return &url.URL{}
	}
	return via
}

// judgeConnect is judge for a connection of which nothing was read. What goes to the upstream proxy needs
// its name, even where the policy doesn't.
func (g *Gateway) judgeConnect(f *flow) egress.Action {
	action := g.judge(f).Action
	if action == egress.Allow && f.Dst.Port() == httpsPort && g.viaFor(f) != nil {
		return egress.Peek
	}
	return action
}

// dialTLS is dial for a flow that speaks TLS.
func (g *Gateway) dialTLS(ctx context.Context, f *flow) (net.Conn, error) {
	via := g.viaFor(f)
	if via == nil {
		return g.dial(ctx, f)
	}
	var name hostname.Name
	if slices.Contains(f.Pinned, f.Name) {
		// Any other was chosen by the guest, and nothing says that it is at the address that was judged.
		name = f.Name
	}
	return g.dialVia(ctx, via, name, f.Dst)
}

// dialVia has the operator's proxy connect to a destination that was judged already. It is asked for the
// name where there is one, since such proxies judge by names: what address it then goes to is its own
// decision, and no longer the pinned one (invariant 6 ends at that proxy).
//
// The proxy's own address is the operator's choice, as a resolver's is: it is dialled at exactly the host
// and port of the policy, resolved by the host, with no fuse.
func (g *Gateway) dialVia(ctx context.Context, via *url.URL, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d Dialer = &net.Dialer{}
	if g.cfg.Dialer != nil {
		d = g.cfg.Dialer
	}
	conn, err := d.DialContext(ctx, "tcp", via.Host)
	if err != nil {
		return nil, fmt.Errorf("%w: it could not be connected to: %w", errVia, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := connectVia(ctx, conn, via, g.tlsToVia(via), name, dst)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errVia, err), conn.Close())
	}
	return tunnel, nil
}

// tlsToVia verifies a proxy that is spoken to over TLS.
func (g *Gateway) tlsToVia(via *url.URL) *tls.Config {
	return &tls.Config{ServerName: via.Hostname(), RootCAs: g.cfg.Roots, MinVersion: tls.VersionTLS12}
}

func connectVia(ctx context.Context, conn net.Conn, via *url.URL, cfg *tls.Config, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	if via.Scheme == "https" {
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	target := dst.String()
	if !name.IsZero() {
		target = net.JoinHostPort(name.String(), fmt.Sprint(dst.Port()))
	}
	if _, err := io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil {
		return nil, err
	}
	status, err := readViaAnswer(conn)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("it answered CONNECT with status %d", status)
	}
	return conn, nil
}

// readViaAnswer returns the answer's status. It reads byte by byte: what comes behind the answer is the
// server's.
func readViaAnswer(conn net.Conn) (status int, err error) {
	var head bytes.Buffer
	var one [1]byte
	for !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")) {
		if head.Len() == maxViaAnswer {
			return 0, errors.New("its answer to CONNECT has no end")
		}
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			return 0, err
		}
		head.WriteByte(one[0])
	}
	resp, err := http.ReadResponse(bufio.NewReader(&head), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
