package dnsguard

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// stalledConn is a connection whose other side doesn't read: a write blocks until its deadline, which is at once here.
type stalledConn struct {
	net.Conn
	mu       sync.Mutex
	deadline time.Time
	bounded  bool // what was written had a deadline
}

func (c *stalledConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *stalledConn) Write([]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := time.Until(c.deadline)
	c.bounded = left > 0 && left <= writeTimeout
	return 0, os.ErrDeadlineExceeded
}

// TestI11_StalledTCPClientsLoseTheirConnection: else some of them would hold every place that the resolver has.
func TestI11_StalledTCPClientsLoseTheirConnection(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("api.example. 300 IN A 93.184.216.34"))
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	conn := &stalledConn{Conn: server}
	served := make(chan struct{})
	go func() { defer close(served); k.ServeTCP(t.Context(), conn) }()
	if err := (&dns.Conn{Conn: client}).WriteMsg(new(dns.Msg).SetQuestion("api.example.", dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	<-served // though the client is there
	if !conn.bounded {
		t.Error("an answer may wait for ever")
	}
}
