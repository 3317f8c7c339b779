package review_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"
)

// talk is one of the guest's connections. What is read from it is kept: the guest may never get a value.
type talk struct {
	net.Conn
	s *session
	r *bufio.Reader
}

// Read implements io.Reader.
func (k *talk) Read(b []byte) (int, error) {
	n, err := k.Conn.Read(b)
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.s.received.Write(b[:n])
	return n, err
}

// talk takes a connection that is ready to be spoken on.
func (s *session) talk(conn net.Conn) *talk {
	k := &talk{Conn: conn, s: s}
	k.r = bufio.NewReader(k)
	s.open = append(s.open, k)
	return k
}

// Dial connects from a port of its own: a guest's stack that chooses one at random may take that of a connection
// which was just reset, and its SYN then meets what is left of it.
func (s *session) Dial(addr netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), spokenWait)
	defer cancel()
	s.port++
	conn, err := s.Guest.DialTCPFrom(ctx, s.port-1, netip.AddrPortFrom(addr, port))
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dial connects to where name is, as TCP.
func (s *session) dial(name string, port uint16) net.Conn {
	s.t.Helper()
	conn, err := s.Dial(s.addr(name), port)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(spokenWait))
	return conn
}

// trust is what the guest verifies servers by: the gateway's authority and the internet's.
func (s *session) trust() *x509.CertPool {
	pool := s.CA.Pool()
	pool.AppendCertsFromPEM(s.Gateway.CAPEM())
	return pool
}

// handshake speaks TLS with name on a connection of its own; change, which may be nil, edits the client.
func (s *session) handshake(name string, change func(*tls.Config), alpn ...string) (*tls.Conn, error) {
	s.t.Helper()
	return s.handshakeOn(s.dial(name, 443), name, change, alpn...)
}

// handshakeOn is handshake on an established connection.
func (s *session) handshakeOn(raw net.Conn, name string, change func(*tls.Config), alpn ...string) (*tls.Conn, error) {
	s.t.Helper()
	cfg := &tls.Config{
		RootCAs: s.trust(), ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: alpn,
		CurvePreferences: []tls.CurveID{tls.X25519}, // post-quantum shares would be half of a recording
	}
	if change != nil {
		change(cfg)
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(s.t.Context()); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// tls is a connection to name on which HTTP/1.1 is spoken.
func (s *session) tls(name string) *talk {
	s.t.Helper()
	conn, err := s.handshake(name, nil, "http/1.1")
	if err != nil {
		s.t.Fatalf("TLS with %s: %v", name, err)
	}
	return s.talk(conn)
}

// plain is a connection to name without TLS.
func (s *session) plain(name string, port uint16) *talk {
	s.t.Helper()
	return s.talk(s.dial(name, port))
}

// say sends text as it is.
func (k *talk) say(text string) {
	k.s.t.Helper()
	if _, err := io.WriteString(k, text); err != nil {
		k.s.t.Fatalf("sending %.80q: %v", text, err)
	}
}

// answer is what the guest was told.
type answer struct {
	s      *session
	Status int
	Header http.Header
	Body   string
	// Refusal is the JSON of an answer of the gateway's own.
	Refusal struct{ Error, Reason, Secret, Cause, Message string }
	// What says what was asked, for messages.
	What string
}

// answer reads the next answer.
func (k *talk) answer(what string) *answer {
	k.s.t.Helper()
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		k.s.t.Fatalf("%s: no answer: %v", what, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		k.s.t.Errorf("%s: the answer breaks off: %v", what, err)
	}
	return k.s.answered(what, resp.StatusCode, resp.Header, string(body))
}

func (s *session) answered(what string, status int, header http.Header, body string) *answer {
	a := &answer{s: s, Status: status, Header: header, Body: body, What: what}
	if header.Get("X-Msb-Reason") != "" {
		if err := json.Unmarshal([]byte(body), &a.Refusal); err != nil {
			s.t.Errorf("%s: the refusal can't be read: %v: %q", what, err, body)
		}
	}
	return a
}

// ask sends a request in raw form, with a Host field if none is in it and the empty line at its end, and
// reads the answer.
func (k *talk) ask(name, line string, fields ...string) *answer {
	k.s.t.Helper()
	k.say(head(name, line, fields...))
	return k.answer(line)
}

// head is a request without a body: "GET /repos/a" and "Name: value" each.
func head(name, line string, fields ...string) string {
	text := line + " HTTP/1.1\r\n"
	if name != "" {
		text += "Host: " + name + "\r\n"
	}
	for _, f := range fields {
		text += f + "\r\n"
	}
	return text + "\r\n"
}

// is asserts an answer of the server's.
func (a *answer) is(status int, body string) {
	a.s.t.Helper()
	if a.Status != status || !strings.Contains(a.Body, body) || a.Refusal.Reason != "" {
		a.s.t.Errorf("%s: status %d, body %.300q; want %d with %q, from the server", a.What, a.Status, a.Body, status, body)
	}
}

// refused asserts an answer of the gateway's own, with a sentence for people.
func (a *answer) refused(status int, reason string) {
	a.s.t.Helper()
	if a.Status != status || a.Refusal.Reason != reason || a.Refusal.Message == "" {
		a.s.t.Errorf("%s: status %d, body %.300q; want %d with the reason %q", a.What, a.Status, a.Body, status, reason)
	}
}

// ended asserts that the gateway ended the connection, and did not just fall silent.
func (k *talk) ended(what string) {
	k.s.t.Helper()
	switch rest, err := io.ReadAll(k.r); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		k.s.t.Errorf("%s: the connection stays open in silence", what)
	case len(rest) > 0:
		k.s.t.Errorf("%s: %d bytes more came: %.100q", what, len(rest), rest)
	}
}
