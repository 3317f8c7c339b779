package review_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
)

// tlsScripts are about which name a connection is for.
func tlsScripts() map[string]script {
	return map[string]script{
		"spoken-tls-host-other":         hostIsTheSNI,
		"spoken-tls-resumption":         sessionsAreOfTheirName,
		"spoken-tls-early-data":         earlyDataIsNotTaken,
		"spoken-tls-hello-byte-by-byte": helloByteByByte,
		"spoken-tls-server-first":       serverFirst,
		"spoken-tls-alpn":               alpnThatCantBeInspected,
	}
}

// with is the field that carries the secret's placeholder.
func (s *session) with() string { return "Authorization: Bearer " + s.token() }

func hostIsTheSNI(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	s.addr("other.example")
	for _, host := range []string{"other.example", "evil.example", "good.example:444", "good.example.evil.example", "93.184.215.14"} {
		k.ask(host, "GET /repos/a", s.with()).refused(http.StatusMisdirectedRequest, "host_mismatch")
	}
	web.got()
	for _, host := range []string{"good.example", "GOOD.Example", "good.example.", "good.example:443"} {
		k.ask(host, "GET /repos/a", s.with()).is(http.StatusOK, "hello from good.example")
	}
	for _, r := range web.got("GET /repos/a", "GET /repos/a", "GET /repos/a", "GET /repos/a") {
		if r.credentials() != "Bearer "+pcapgen.SecretValue {
			s.t.Errorf("the right server got %q", r.credentials())
		}
	}
	s.dialled("tcp " + goodSite)
}

// oneSession is a client's cache that offers its session whatever the server's name is.
type oneSession struct{ state *tls.ClientSessionState }

func (o *oneSession) Get(string) (*tls.ClientSessionState, bool) { return o.state, o.state != nil }

func (o *oneSession) Put(_ string, state *tls.ClientSessionState) {
	if state != nil {
		o.state = state
	}
}

func sessionsAreOfTheirName(s *session) {
	web, other := s.site("good.example", goodSite, nil), s.site("other.example", otherSite, nil)
	sessions := &oneSession{}
	offer := func(sni string) func(*tls.Config) {
		return func(cfg *tls.Config) {
			cfg.ServerName, cfg.ClientSessionCache = sni, sessions
			cfg.InsecureSkipVerify = true // or Go's client keeps a session to its name
		}
	}
	connect := func(name, sni string) *talk {
		conn, err := s.handshake(name, offer(sni), "http/1.1")
		if err != nil {
			s.t.Fatal(err)
		}
		if resumed := conn.ConnectionState().DidResume; resumed != (len(s.open) > 0) {
			s.t.Errorf("%s: resumed %v", name, resumed)
		}
		return s.talk(conn)
	}
	connect("good.example", "good.example").ask("good.example", "GET /repos/a", s.with()).is(http.StatusOK, "hello")
	k := connect("other.example", "other.example")
	k.ask("other.example", "GET /b").is(http.StatusOK, "hello from other.example")
	k.ask("good.example", "GET /repos/b", s.with()).refused(http.StatusMisdirectedRequest, "host_mismatch")
	k.ask("other.example", "GET /c", s.with()).refused(http.StatusForbidden, "secret_host")
	if _, err := s.handshake("other.example", offer("good.example"), "http/1.1"); err == nil {
		s.t.Error("a session was resumed for a name that is not at this address")
	}
	web.got("GET /repos/a")
	other.got("GET /b")
	s.dialled("tcp "+goodSite, "tcp "+otherSite)
}

// hello is a ClientHello in its record, as Go's client makes it.
func hello(cfg *tls.Config) []byte {
	var sent writeOnly
	_ = tls.Client(&sent, cfg).Handshake()
	return sent.all
}

// writeOnly is a connection whose peer never says anything.
type writeOnly struct {
	net.Conn
	all []byte
}

func (w *writeOnly) Write(b []byte) (int, error) { w.all = append(w.all, b...); return len(b), nil }
func (w *writeOnly) Read([]byte) (int, error)    { return 0, io.EOF }
func (w *writeOnly) Close() error                { return nil }

// withEarlyData adds the extension early_data (RFC 8446, section 4.2.10) to a ClientHello.
func withEarlyData(record []byte) []byte {
	const (
		inRecord, inHello = 3, 6           // where the lengths of both stand
		session           = 5 + 4 + 2 + 32 // behind version and random
	)
	at := session + 1 + int(record[session])
	at += 2 + int(record[at])<<8 + int(record[at+1]) // cipher suites
	at += 1 + int(record[at])                        // compression
	out := append([]byte(nil), record...)
	for _, length := range []int{inRecord, inHello + 1, at} {
		n := int(out[length])<<8 + int(out[length+1]) + 4
		out[length], out[length+1] = byte(n>>8), byte(n)
	}
	rest := append([]byte{0, 42, 0, 0}, out[at+2:]...)
	return append(out[:at+2], rest...)
}

func earlyDataIsNotTaken(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.plain("good.example", 443)
	early := "\x17\x03\x03\x00\x40" + strings.Repeat("early!!!", 8)
	k.say(string(withEarlyData(hello(&tls.Config{ServerName: "good.example", MinVersion: tls.VersionTLS13}))) + early)
	const fatalAlert = "\x15\x03\x03\x00\x02\x02"
	if alert, _ := io.ReadAll(k.r); !strings.HasPrefix(string(alert), fatalAlert) {
		s.t.Errorf("early data is answered %q, want a fatal alert", alert)
	}
	web.got()
	s.dialled()
	s.tls("good.example").ask("good.example", "GET /repos/a").is(http.StatusOK, "hello")
}

// byByte writes its first bytes one to a segment: the next is sent when the last has arrived.
type byByte struct {
	net.Conn
	s     *session
	first int
}

// Write implements io.Writer.
func (b *byByte) Write(p []byte) (n int, err error) {
	for ; b.first > 0 && n < len(p); b.first-- {
		if _, err := b.Conn.Write(p[n : n+1]); err != nil {
			return n, err
		}
		n++
		b.s.acknowledged(b.LocalAddr(), n)
	}
	if n == len(p) {
		return n, nil
	}
	m, err := b.Conn.Write(p[n:])
	return n + m, err
}

// acknowledged waits until the gateway has acknowledged n bytes of what was sent from an address.
func (s *session) acknowledged(from net.Addr, n int) {
	s.t.Helper()
	port := netip.MustParseAddrPort(from.String()).Port()
	ctx, cancel := context.WithTimeout(s.t.Context(), spokenWait)
	defer cancel()
	first := uint32(0)
	if _, err := s.Guest.WaitFrame(ctx, func(frame []byte) bool {
		h, ok := capture.Decode(frame)
		if !ok || h.Transport != capture.TransportTCP || h.Dst.Port() != port {
			return false
		}
		ack := binary.BigEndian.Uint32(frame[14+20+8:]) // behind Ethernet and IPv4 without options
		if h.Flags&capture.SYN != 0 {
			first = ack
		}
		return ack-first >= uint32(n)
	}); err != nil {
		s.t.Fatalf("byte %d is not acknowledged: %v", n, err)
	}
}

func helloByteByByte(s *session) {
	const helloBytes = 160 // most of one, the name among them
	web := s.site("good.example", goodSite, nil)
	small := func(cfg *tls.Config) {
		cfg.MinVersion, cfg.CurvePreferences = tls.VersionTLS13, []tls.CurveID{tls.X25519}
	}
	conn, err := s.handshakeOn(&byByte{s.dial("good.example", 443), s, helloBytes}, "good.example", small)
	if err != nil {
		s.t.Fatal(err)
	}
	s.talk(conn).ask("good.example", "GET /admin").refused(http.StatusForbidden, "path_not_allowed")
	cfg := &tls.Config{ServerName: "good.example"}
	small(cfg)
	s.plain("good.example", 443).say(string(hello(cfg)[:60]))
	s.hangUp()
	web.got()
	s.dialled()
}

func serverFirst(s *session) {
	const greeting = "220 mail.good.example ESMTP\r\n"
	s.Serve("93.184.215.14:25", func(c net.Conn) {
		_, _ = io.WriteString(c, greeting)
		_, _ = io.Copy(c, c)
	})
	addr := netip.MustParseAddr("93.184.215.14")
	conn, err := s.Dial(addr, 25)
	if err != nil {
		s.t.Fatal(err)
	}
	k := s.talk(conn)
	want := greeting + "EHLO guest\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(k.r, got[:len(greeting)]); err != nil {
		s.t.Fatalf("no greeting: %v", err)
	}
	k.say("EHLO guest\r\n")
	if _, err := io.ReadFull(k.r, got[len(greeting):]); err != nil || string(got) != want {
		s.t.Errorf("got %q, %v", got, err)
	}
	if conn, err := s.Dial(addr, 26); err == nil {
		_ = conn.Close()
		s.t.Error("a port that no rule names could be connected to")
	}
	s.dialled("tcp 93.184.215.14:25")
}

func alpnThatCantBeInspected(s *session) {
	web := s.site("good.example", goodSite, nil)
	const noApplicationProtocol = tls.AlertError(120)
	for _, only := range []string{"h3", "tunnel/1", "ssh"} {
		_, err := s.handshake("good.example", nil, only)
		var alert tls.AlertError
		if !errors.As(err, &alert) && !strings.Contains(err.Error(), noApplicationProtocol.Error()) {
			s.t.Errorf("ALPN %s: %v, want the alert %v", only, err, noApplicationProtocol)
		}
	}
	web.got()
	s.dialled()
	conn, err := s.handshake("good.example", nil, "tunnel/1", "http/1.1")
	if err != nil || conn.ConnectionState().NegotiatedProtocol != "http/1.1" {
		s.t.Fatalf("with HTTP/1.1 beside it: %v", err)
	}
	s.talk(conn).ask("good.example", "GET /admin").refused(http.StatusForbidden, "path_not_allowed")
}
