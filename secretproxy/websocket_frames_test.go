package secretproxy

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

const frameWait = 60 * time.Second

// testFrame is a frame with that first byte, as a client or a server sends it.
func testFrame(client bool, first byte, payload string) string {
	var b []byte
	mask := byte(0)
	if client {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = []byte{first, mask | byte(n)}
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16([]byte{first, mask | 126}, uint16(n))
	default:
		b = binary.BigEndian.AppendUint64([]byte{first, mask | 127}, uint64(n))
	}
	if !client {
		return string(b) + payload
	}
	key := []byte{0x11, 0x22, 0x33, 0x44}
	b = append(b, key...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return string(b)
}

// readTestFrame reads one frame, its payload unmasked.
func readTestFrame(r *bufio.Reader) (first byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, "", err
	}
	n := int(head[1] & 0x7f)
	if size := map[int]int{126: 2, 127: 8}[n]; size > 0 {
		b := make([]byte, 8)
		if _, err := io.ReadFull(r, b[8-size:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint64(b))
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, key[:]); err != nil {
			return 0, "", err
		}
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, "", err
	}
	for i := range b {
		b[i] ^= key[i%4]
	}
	return head[0], string(b), nil
}

// readTestMessage puts the frames of a message together. Pings among them are
// skipped; another control frame is returned.
func readTestMessage(r *bufio.Reader) (opcode byte, payload string, err error) {
	for {
		first, piece, err := readTestFrame(r)
		switch {
		case err != nil || first&0xf >= 8 && piece != "ping":
			return first & 0xf, piece, err
		case first&0xf >= 8:
			continue
		}
		if payload += piece; first&0xf != 0 {
			opcode = first & 0xf
		}
		if first&0x80 != 0 {
			return opcode, payload, nil
		}
	}
}

// socketWorld is a server that upgrades every request and hands the connection to
// script, and a way to open one as the guest.
func socketWorld(t *testing.T, script func(conn net.Conn, r *bufio.Reader), options ...option) (w *world, open func(host string, addr netip.AddrPort, fields string) (net.Conn, *bufio.Reader, *http.Response)) {
	t.Helper()
	handler := func(rw http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(frameWait))
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", r.Header.Get("Upgrade"))
		script(conn, buffered.Reader)
	}
	w = newWorld(t, handler, options...)
	return w, func(host string, addr netip.AddrPort, fields string) (net.Conn, *bufio.Reader, *http.Response) {
		t.Helper()
		var conn net.Conn
		name := host
		if addr == plainAddr {
			w.plain = newRecordingServer(t, apiHost, nil, handler)
			conn = w.pipe(flow(host, addr), true)
		} else {
			conn = w.tlsConn(host, addr, "http/1.1")
			if addr.Port() != 443 {
				name = fmt.Sprintf("%s:%d", host, addr.Port())
			}
		}
		_ = conn.SetDeadline(time.Now().Add(frameWait))
		if !strings.Contains(fields, "Upgrade:") {
			fields += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		}
		_, _ = io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: "+name+"\r\nConnection: Upgrade\r\n"+fields+"\r\n")
		r := bufio.NewReaderSize(conn, 1<<16)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn, r, resp
	}
}

// cut is a message in frames of n bytes, with a ping behind each if asked for.
func cut(client bool, opcode byte, text string, n int, pings bool) string {
	out := ""
	for first := opcode; ; first = 0 {
		piece := text[:min(n, len(text))]
		if text = text[len(piece):]; text == "" {
			return out + testFrame(client, 0x80|first, piece)
		}
		if out += testFrame(client, first, piece); pings {
			out += testFrame(client, 0x89, "ping")
		}
	}
}

// spelledMessages are texts that hold s in ways that the masker knows.
func spelledMessages(s string) map[string]string {
	return map[string]string{
		"alone": s, "within": `{"type":"hello","token":"` + s + `","n":1}`, "base64": base64.StdEncoding.EncodeToString([]byte("u:" + s)),
		"binary": "\x00\x01\xff" + s + "\xfe\x00", "long": strings.Repeat("lorem ipsum ", 3000) + s + strings.Repeat(" dolor", 3000),
		"very long": strings.Repeat("x ", wholeMessage) + s + strings.Repeat(" y", 20_000) + s,
	}
}

// TestI10_WebSocketValuesAreMasked has a server show the value in messages that
// are cut at every length, and in control frames.
func TestI10_WebSocketValuesAreMasked(t *testing.T) {
	t.Parallel()
	next := make(chan string, 1)
	w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
		for {
			if _, _, err := readTestFrame(r); err != nil {
				return
			}
			_, _ = io.WriteString(conn, <-next)
		}
	}, withSecret(secretIn(t, header("Authorization"))))
	conn, r, resp := open(apiHost, apiAddr, "Authorization: "+w.placeholder()+"\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec_WebSocket-Extensions: permessage-deflate\r\n")
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-Websocket-Extensions") != "" {
		t.Fatalf("got %+v", resp)
	}
	if seen := w.api.bytes(); strings.Contains(seen, "permessage-deflate") || !strings.Contains(seen, realValue) {
		t.Errorf("the server got %q", seen)
	}
	ask := func(frames string) {
		_, _ = io.WriteString(conn, testFrame(true, 0x81, "next"))
		next <- frames
	}
	clean := func(what, got string) {
		if strings.Contains(got, realValue[:8]) || strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("u:" + realValue))[8:20]) {
			t.Errorf("%s: the guest got %.200q", what, got)
		}
	}
	want := spelledMessages(w.placeholder())
	for name, text := range spelledMessages(realValue) {
		for _, n := range []int{1, 3, 7, 28, 29, 30, 1000, len(text)} {
			if len(text)/n > 1000 {
				continue
			}
			for _, pings := range []bool{false, true} {
				opcode := byte(1 + n%2)
				ask(cut(false, opcode, text, n, pings))
				got, payload, err := readTestMessage(r)
				if err != nil {
					t.Fatalf("%s in frames of %d: %v", name, n, err)
				}
				if clean(name, payload); got != opcode || payload != want[name] {
					t.Errorf("%s in frames of %d: the guest got %d %.200q, want %d %.200q", name, n, got, payload, opcode, want[name])
				}
			}
		}
	}
	for first, payload := range map[byte]string{0x89: "a " + realValue, 0x8a: realValue, 0x88: "\x03\xe8" + realValue} {
		ask(testFrame(false, first, payload) + testFrame(false, first, payload[:2]+"plain"))
		_, got, err := readTestFrame(r)
		if clean("control", got); err != nil || first == 0x88 && got != "\x03\xe8" || first != 0x88 && got != "" {
			t.Errorf("control frame %#x: %q, %v", first, got, err)
		}
		if first == 0x88 {
			break // the last, whatever follows it
		}
		if _, got, err := readTestFrame(r); err != nil || got != payload[:2]+"plain" {
			t.Errorf("control frame %#x without a value: %q, %v", first, got, err)
		}
	}
}

// socketSecret is the usual secret with "websocket" among its places, and a value
// that JSON escapes.
func socketSecret(t *testing.T) policies.Secret {
	t.Helper()
	return secretIn(t, header("Authorization"), policies.Place{Kind: policies.InWebSocket})
}

// TestI9_WebSocketsCarryValuesToTheirHost sends a placeholder in messages cut at every
// length: to the secret's host, where the value takes its place, and elsewhere, where
// nothing of it may arrive.
func TestI9_WebSocketsCarryValuesToTheirHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		listed bool
		host   string
		addr   netip.AddrPort
		reason string
	}{
		{"listed", true, apiHost, apiAddr, ""},
		{"not listed", false, apiHost, apiAddr, "secret_place"},
		{"another host", true, evilHost, evilAddr, "secret_host"},
		{"another port", true, apiHost, otherAddr, "secret_port"},
		{"plain HTTP", true, apiHost, plainAddr, "secret_plain_http"},
	} {
		got := make(chan string, 100)
		s := secretIn(t, header("Authorization"))
		if c.listed {
			s = socketSecret(t)
		}
		w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) {
			for {
				_, payload, err := readTestMessage(r)
				if err != nil {
					got <- "end"
					return
				}
				got <- payload
			}
		}, withSecret(s))
		want := spelledMessages(realValue)
		for name, text := range spelledMessages(w.placeholder()) {
			if c.listed && c.reason == "" && name == "base64" {
				continue // only what stands there byte by byte is replaced
			}
			for _, n := range []int{1, 7, 40, 1000, len(text)} {
				if len(text)/n > 1000 || n == len(text) && len(text) > 100_000 && c.reason != "" && c.reason != "secret_place" {
					continue
				}
				conn, r, resp := open(c.host, c.addr, "")
				if resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%s: status %d", c.name, resp.StatusCode)
				}
				go func() { _, _ = io.WriteString(conn, cut(true, 1, text, n, false)) }()
				arrived := <-got
				if c.reason == "" {
					if arrived != want[name] {
						t.Errorf("%s, %s in frames of %d: the server got %.200q, want %.200q", c.name, name, n, arrived, want[name])
					}
					_ = conn.Close()
					if end := <-got; end != "end" {
						t.Errorf("%s: the server got %.100q after the end", c.name, end)
					}
					continue
				}
				if arrived != "end" {
					t.Errorf("%s, %s in frames of %d: the server got %.200q", c.name, name, n, arrived)
				}
				if opcode, payload, err := readTestMessage(r); err != nil || opcode != opClose || payload != "\x03\xf0"+c.reason {
					t.Errorf("%s, %s: the guest got %d %q, %v; want a Close with 1008 and %s", c.name, name, opcode, payload, err, c.reason)
				}
			}
		}
		violations := len(w.events.of(audit.SecretViolation))
		if (violations > 0) != (c.reason != "") {
			t.Errorf("%s: %d violations", c.name, violations)
		}
		for _, e := range w.events.of(audit.SecretViolation) {
			if e.Reason != c.reason || e.Place != "websocket" || e.Secret != "GITHUB_TOKEN" {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		if seen := w.evil.bytes() + w.api.bytes(); strings.Contains(seen, w.placeholder()) {
			t.Errorf("%s: the placeholder arrived", c.name)
		}
	}
}

// TestI9_ControlFramesCarryNoPlaceholder sends one where programs read text too,
// between the frames of a message as well.
func TestI9_ControlFramesCarryNoPlaceholder(t *testing.T) {
	t.Parallel()
	for _, first := range []byte{0x88, 0x89, 0x8a} {
		for _, within := range []bool{false, true} {
			seen := make(chan string, 1)
			w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) {
				all, _ := io.ReadAll(r)
				seen <- string(all)
			}, withSecret(socketSecret(t)))
			conn, r, _ := open(apiHost, apiAddr, "")
			before := ""
			if within {
				before = testFrame(true, 0x01, "begun ")
			}
			_, _ = io.WriteString(conn, before+testFrame(true, first, "\x03\xe8"+w.placeholder())+testFrame(true, 0x80, "end"))
			if opcode, payload, err := readTestMessage(r); err != nil || opcode != opClose || payload != "\x03\xf0secret_place" {
				t.Errorf("%#x: the guest got %d %q, %v", first, opcode, payload, err)
			}
			if got := <-seen; len(got) > len(before) {
				t.Errorf("%#x: the server got %q", first, got)
			}
		}
	}
}

// TestI9_FramesAreReadStrictly sends what two readers of frames could take for
// two things, in both directions. Nothing of it may arrive.
func TestI9_FramesAreReadStrictly(t *testing.T) {
	t.Parallel()
	frames := func(client bool) map[string]string {
		text := testFrame(client, 0x81, "text")
		long := testFrame(client, 0x81, strings.Repeat("x", 200))
		bit := text[1] & 0x80
		key := ""
		if client {
			key = "\x00\x00\x00\x00"
		}
		return map[string]string{
			"RSV1": testFrame(client, 0xc1, "text"), "RSV2": testFrame(client, 0xa1, "text"), "RSV3": testFrame(client, 0x91, "text"),
			"RSV1 of a ping": testFrame(client, 0xc9, "text"), "masking": testFrame(!client, 0x81, "text"),
			"opcode 3": testFrame(client, 0x83, "text"), "opcode 7": testFrame(client, 0x87, "text"), "opcode 11": testFrame(client, 0x8b, "text"), "opcode 15": testFrame(client, 0x8f, ""),
			"ping in parts": testFrame(client, 0x09, "text"), "large ping": testFrame(client, 0x89, strings.Repeat("x", 126)), "large Close": testFrame(client, 0x88, strings.Repeat("x", 1000)),
			"continues nothing": testFrame(client, 0x80, "text"), "interrupts": testFrame(client, 0x01, "") + testFrame(client, 0x81, "text"),
			"continues what ended":  testFrame(client, 0x81, "") + testFrame(client, 0x80, "text"),
			"two bytes for 4":       "\x81" + string([]byte{bit | 126, 0, 4}) + key + "text",
			"two bytes for 125":     "\x81" + string([]byte{bit | 126, 0, 125}) + key + strings.Repeat("x", 125),
			"eight bytes for 65535": "\x81" + string([]byte{bit | 127, 0, 0, 0, 0, 0, 0, 255, 255}) + key + strings.Repeat("x", 65535),
			"eight bytes for 200":   "\x81" + string([]byte{bit | 127, 0, 0, 0, 0, 0, 0, 0, 200}) + key + long[len(long)-200:],
			"negative":              "\x81" + string([]byte{bit | 127, 0x80, 0, 0, 0, 0, 0, 0, 4}) + key + "text",
			"negative, large":       "\x81" + string([]byte{bit | 127, 0x80, 0, 0, 0, 0, 1, 0, 0}) + key + strings.Repeat("x", 1<<16),
			"broken off":            text[:len(text)-1],
		}
	}
	for _, fromGuest := range []bool{true, false} {
		for name, bytes := range frames(fromGuest) {
			seen := make(chan string, 1)
			w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
				if !fromGuest {
					_, _ = io.WriteString(conn, bytes)
					if c, ok := conn.(interface{ CloseWrite() error }); ok && name == "broken off" {
						_ = c.CloseWrite()
					}
				}
				all, _ := io.ReadAll(r)
				seen <- string(all)
			}, withSecret(secretIn(t, header("Authorization"))))
			conn, r, _ := open(apiHost, apiAddr, "")
			if fromGuest {
				_, _ = io.WriteString(conn, bytes)
				if c, ok := conn.(interface{ CloseWrite() error }); ok && name == "broken off" {
					_ = c.CloseWrite()
				}
			}
			all, _ := io.ReadAll(r)
			arrived := <-seen
			if !fromGuest {
				arrived = strings.ReplaceAll(string(all), "\x88\x13\x03\xeaupstream_protocol", "")
			}
			if strings.Contains(arrived, "text") || strings.Contains(arrived, "xxxx") || len(arrived) > 10 {
				t.Errorf("%s (from the guest %v): %q arrived", name, fromGuest, arrived)
			}
			if name == "broken off" {
				continue
			}
			if !strings.Contains(string(all), "\x03\xea") {
				t.Errorf("%s (from the guest %v): the guest got %q, want a Close with 1002", name, fromGuest, all)
			}
			if n := len(w.events.of(audit.HTTPRequest)); n != 2 {
				t.Errorf("%s (from the guest %v): %d lines of audit, want one for the request and one for the frame", name, fromGuest, n)
			}
		}
	}
}

// TestFramesPassByteByByte: frames without a value or placeholder, at each border of the lengths, arrive as they
// were sent, either way.
func TestFramesPassByteByByte(t *testing.T) {
	t.Parallel()
	var frames [2][]string // of a server, of a client
	for client := range frames {
		add := func(first byte, n int) {
			frames[client] = append(frames[client], testFrame(client == 1, first, strings.Repeat("lorem ipsum ", n/12+1)[:n]))
		}
		for _, n := range []int{0, 1, 125, 126, 127, 1<<16 - 1, 1 << 16, 1<<16 + 1, wholeMessage} {
			add(0x81, n)
			add(0x82, n)
		}
		for _, control := range []byte{0x89, 0x8a} {
			add(control, 0)
			add(control, 4)
			add(control, maxControl)
		}
		frames[client] = append(frames[client], testFrame(client == 1, 0x88, "\x03\xe8the end"))
	}
	pass := func(to io.Writer, from io.Reader, send, want []string) error {
		for i := range want {
			if _, err := io.WriteString(to, send[i]); err != nil {
				return err
			}
			got := make([]byte, len(want[i]))
			n, err := io.ReadFull(from, got)
			if err != nil || string(got) != want[i] {
				return fmt.Errorf("frame %d of %d bytes: %.40q, %w; want %.40q", i, len(want[i]), got[:n], err, want[i])
			}
		}
		return nil
	}
	served := make(chan error, 1)
	_, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
		served <- pass(conn, r, frames[0], frames[1])
	}, withSecret(socketSecret(t)))
	conn, r, _ := open(apiHost, apiAddr, "")
	if err := pass(conn, r, frames[1], frames[0]); err != nil {
		t.Errorf("the guest got %v", err)
	}
	_ = conn.Close()
	if err := <-served; err != nil {
		t.Errorf("the server got %v", err)
	}
}

// TestI11_FramesAreBounded sends heads that promise more than comes, and
// placeholders whose values would fill memory.
func TestI11_FramesAreBounded(t *testing.T) {
	t.Parallel()
	s := socketSecret(t)
	writeValue(t, &s, strings.Repeat("v", 8<<10))
	arrived := make(chan int, 1)
	w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) {
		n, _ := io.Copy(io.Discard, r)
		arrived <- int(n)
	}, withSecret(s))
	for name, frames := range map[string]string{
		"whole":  testFrame(true, 0x81, strings.Repeat(w.placeholder(), wholeMessage/len(w.placeholder())-1)),
		"pieces": testFrame(true, 0x01, strings.Repeat("x", wholeMessage-10)) + testFrame(true, 0x00, strings.Repeat(w.placeholder(), 200)),
	} {
		conn, r, _ := open(apiHost, apiAddr, "")
		go func() { _, _ = io.WriteString(conn, frames) }()
		if opcode, payload, err := readTestMessage(r); err != nil || opcode != opClose || !strings.HasPrefix(payload, "\x03\xea") {
			t.Errorf("%s: the guest got %d %.100q, %v", name, opcode, payload, err)
		}
		if n := <-arrived; n > wholeMessage+100 {
			t.Errorf("%s: %d bytes arrived", name, n)
		}
	}
	promise := []byte{0x82, 0xff, 0x3f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}
	conn, _, _ := open(apiHost, apiAddr, "")
	_, _ = conn.Write(append(promise, "some of it"...))
	_ = conn.Close()
	if n := <-arrived; n > 100 {
		t.Errorf("%d bytes arrived", n)
	}
}

// TestI10_WebSocketFollowsAReload has the value rotated while a connection stands:
// messages get the new one, and both are masked.
func TestI10_WebSocketFollowsAReload(t *testing.T) {
	t.Parallel()
	s := socketSecret(t)
	w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
		for {
			_, payload, err := readTestMessage(r)
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, testFrame(false, 0x81, payload)+testFrame(false, 0x81, "old "+realValue))
		}
	}, withSecret(s))
	conn, r, _ := open(apiHost, apiAddr, "")
	const second = `second"value\with-quotes-0123`
	for round, value := range []string{realValue, second} {
		writeValue(t, &s, value)
		reload(t, w, s)
		_, _ = io.WriteString(conn, testFrame(true, 0x81, ` {"t":"`+w.placeholder()+`"}`))
		for _, want := range []string{` {"t":"` + w.placeholder() + `"}`, "old " + w.placeholder()} {
			if _, payload, err := readTestMessage(r); err != nil || payload != want {
				t.Errorf("round %d: the guest got %q, %v; want %q", round, payload, err, want)
			}
		}
	}
	if n := len(w.events.of(audit.SecretSwap)); n != 1 {
		t.Errorf("%d swap events, want one for the connection", n)
	}
	reload(t, w) // no secret is left
	_, _ = io.WriteString(conn, testFrame(true, 0x81, "gone "+w.placeholder())+testFrame(true, 0x81, "x"))
	if _, payload, err := readTestMessage(r); err != nil || strings.Contains(payload, "value") || strings.Contains(payload, realValue) {
		t.Errorf("after the secret was taken out, the server got %q, %v", payload, err)
	}
}

// TestI10_OtherUpgradesOnASecretsHost are refused unless the secret names them:
// nobody looks into them, as the allowed one shows.
func TestI10_OtherUpgradesOnASecretsHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, protocol string
		host           string
		addr           netip.AddrPort
		allowed        bool
	}{
		{"another protocol", "tcp", apiHost, apiAddr, false},
		{"a list", "websocket, tcp", apiHost, apiAddr, false},
		{"a name with more", "websocket/13", apiHost, apiAddr, false},
		{"another port", "tcp", apiHost, otherAddr, false},
		{"plain HTTP", "tcp", apiHost, plainAddr, false},
		{"named", "SPDY/3.1", apiHost, apiAddr, true},
		{"another host", "tcp", evilHost, evilAddr, true},
	} {
		s := secretIn(t, header("Authorization"))
		s.Upgrades = []string{"spdy/3.1"}
		w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
			_, _ = io.WriteString(conn, realValue)
			_, _ = io.Copy(conn, r)
		}, withSecret(s))
		conn, r, resp := open(c.host, c.addr, "Upgrade: "+c.protocol+"\r\n")
		if !c.allowed {
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusForbidden || !bytes.Contains(body, []byte(`"upgrade"`)) || w.api.bytes()+w.evil.bytes() != "" {
				t.Errorf("%s: status %d: %s; the servers got %q", c.name, resp.StatusCode, body, w.api.bytes()+w.evil.bytes())
			}
			continue
		}
		got := make([]byte, len(realValue))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != realValue {
			t.Errorf("%s: the guest got %q, %v; want the bytes as they are", c.name, got, err)
		}
		s.Upgrades = nil
		h, err := policies.ParseSecretHost(c.host)
		if err != nil {
			t.Fatal(err)
		}
		s.Hosts = []policies.SecretHost{h}
		reload(t, w, s)
		_, _ = io.WriteString(conn, "echo")
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Errorf("%s: after a reload that forbids it the guest got %q", c.name, rest)
		}
	}
}

// TestI10_ExtendedConnectIsRefused asks for a WebSocket over HTTP/2 (RFC 8441),
// where it is a CONNECT with a protocol.
func TestI10_ExtendedConnectIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(socketSecret(t)))
	conn := w.tlsConn(apiHost, apiAddr, "h2")
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"}, {Name: ":scheme", Value: "https"},
		{Name: ":path", Value: "/live"}, {Name: ":authority", Value: apiHost}, {Name: "authorization", Value: w.placeholder()},
	} {
		_ = enc.WriteField(f)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := frame.(*http2.SettingsFrame); ok {
			if v, ok := f.Value(http2.SettingEnableConnectProtocol); ok && v == 1 {
				t.Error("extended CONNECT is offered")
			}
		}
		if f, ok := frame.(*http2.MetaHeadersFrame); ok && !strings.HasPrefix(f.PseudoValue("status"), "4") {
			t.Errorf("status %s", f.PseudoValue("status"))
		}
		if h := frame.Header(); h.StreamID == 1 || h.Type == http2.FrameGoAway {
			break
		}
	}
	if got := w.api.bytes(); got != "" {
		t.Errorf("the server got %q", got)
	}
}

// writeValue makes value the secret's.
func writeValue(t *testing.T, s *policies.Secret, value string) {
	t.Helper()
	if err := os.WriteFile(s.From.Value, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}
