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
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/secretproxy"
)

// maxViaAnswer bounds the head of the upstream proxy's answer to a CONNECT.
const maxViaAnswer = 16 << 10

// errVia is what is wrong with the upstream proxy of [tls] via.
var errVia = secretproxy.ErrVia

// dialVia has the operator's proxy connect to a destination that was judged already. It is asked for the
// name where there is one, since such proxies judge by names: what address it then goes to is its own
// decision, and no longer the pinned one (invariant 6 ends at that proxy).
//
// The proxy's own address is the operator's choice, as a resolver's is: it is dialled at exactly the host
// and port of the policy, resolved by the host, with no fuse.
func dialVia(ctx context.Context, g *Gateway, via *url.URL, name hostname.Name, dst netip.AddrPort) (net.Conn, error) {
	if via == nil {
		return nil, fmt.Errorf("%w: the policy in force has none", errVia)
	}
	if err := g.budget.takePacket(0); err != nil {
		return nil, err
	}
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
	// What is said to the proxy counts, whatever it answers; who uses the tunnel counts what goes through it.
	metered := &meteredConn{Conn: conn, take: g.budget.take}
	tunnel, err := connectVia(ctx, metered, via, tlsToVia(g, via), connectRequest(name, dst))
	metered.take = func(int) error { return nil }
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errVia, err), conn.Close())
	}
	return tunnel, nil
}

// tlsToVia verifies a proxy that takes TLS.
func tlsToVia(g *Gateway, via *url.URL) *tls.Config {
	return &tls.Config{ServerName: via.Hostname(), RootCAs: g.cfg.Roots, MinVersion: tls.VersionTLS12}
}

// connectRequest asks for the name where there is one, else for the address.
func connectRequest(name hostname.Name, dst netip.AddrPort) string {
	target := dst.String()
	if !name.IsZero() {
		target = net.JoinHostPort(name.String(), fmt.Sprint(dst.Port()))
	}
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func connectVia(ctx context.Context, conn net.Conn, via *url.URL, cfg *tls.Config, request string) (net.Conn, error) {
	if via.Scheme == "https" {
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	if _, err := io.WriteString(conn, request); err != nil {
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
	// A length, which says nothing in an answer to CONNECT, makes Close miss the body that it announces.
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
