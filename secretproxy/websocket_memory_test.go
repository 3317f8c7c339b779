package secretproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestI11_MessagesAreHeldWithinTheBudget: messages of both ways, held whole, in pieces and as values that are put in,
// end the connection where there is no room, and pass where there is.
func TestI11_MessagesAreHeldWithinTheBudget(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct {
		memory     int64 // enough for the connection, not for the message
		fromServer bool
		message    func(client bool, placeholder string) string
	}{
		"whole":                {512 << 10, false, func(client bool, _ string) string { return testFrame(client, 0x82, text) }},
		"whole of the server":  {512 << 10, true, func(client bool, _ string) string { return testFrame(client, 0x82, text) }},
		"fragments":            {300 << 10, false, func(client bool, _ string) string { return cut(client, 2, text, 5000, true) }},
		"pieces":               {300 << 10, false, func(client bool, _ string) string { return testFrame(client, 0x82, text+text) }},
		"pieces of the server": {512 << 10, true, func(client bool, _ string) string { return testFrame(client, 0x82, text+text) }},
		"values":               {768 << 10, false, func(client bool, p string) string { return testFrame(client, 0x82, strings.Repeat(p, 100)) }},
	} {
		for _, enough := range []bool{false, true} {
			memory := c.memory
			if enough {
				memory = memoryLimit
			}
			arrived := make(chan int, 1)
			var message func(client bool) string
			s := socketSecret(t)
			writeValue(t, &s, strings.Repeat("vX", 4<<10))
			w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
				if c.fromServer {
					_, _ = io.WriteString(conn, message(false))
				}
				n, _ := io.Copy(io.Discard, r)
				arrived <- int(n)
			}, withSecret(s), withMemory(memory))
			message = func(client bool) string { return c.message(client, w.placeholder()) }
			conn, r, resp := open(apiHost, apiAddr, "")
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s: status %d", name, resp.StatusCode)
			}
			if !c.fromServer {
				go func() {
					_, _ = io.WriteString(conn, message(true))
					if half, ok := conn.(interface{ CloseWrite() error }); ok {
						_ = half.CloseWrite()
					}
				}()
			}
			if enough && !c.fromServer {
				if n := <-arrived; n < len(text) {
					t.Errorf("%s: %d bytes arrived", name, n)
				}
				_ = conn.Close()
			} else {
				opcode, payload, err := readTestMessage(r)
				if enough && (err != nil || len(payload) < len(text)) {
					t.Errorf("%s: with room, the guest got %d, %d bytes, %v", name, opcode, len(payload), err)
				}
				if !enough && (err != nil || opcode != opClose || payload != "\x03\xf5memory") {
					t.Errorf("%s: the guest got %d %.100q, %v", name, opcode, payload, err)
				}
				_ = conn.Close()
				<-arrived
			}
			full := slices.ContainsFunc(w.events.of(audit.HTTPRequest), func(e audit.Event) bool { return e.Reason == "memory" })
			if full == enough {
				t.Errorf("%s: with room %v, a line about the bound is in the audit log: %v", name, enough, full)
			}
			givesAllBack(t, name, w)
		}
	}
}

// TestI11_UnfinishedMessagesAreCounted: what is held of messages that never end counts, and no longer once they do.
func TestI11_UnfinishedMessagesAreCounted(t *testing.T) {
	t.Parallel()
	w, open := socketWorld(t, func(_ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }, withSecret(socketSecret(t)))
	const conns, size = 4, 250 << 10
	var all []net.Conn
	for range conns {
		conn, _, _ := open(apiHost, apiAddr, "")
		_, _ = io.WriteString(conn, testFrame(true, 0x02, strings.Repeat("x", size)))
		all = append(all, conn)
	}
	idle := int64(conns * 2 * copySize)
	eventually(t, "messages are held that nobody counts", func() bool { return w.proxy.Stats().Held >= idle+conns*size })
	for _, conn := range all {
		_, _ = io.WriteString(conn, testFrame(true, 0x80, "end"))
	}
	eventually(t, "messages are counted that nobody holds", func() bool { return w.proxy.Stats().Held < idle+size })
	for _, conn := range all {
		_ = conn.Close()
	}
	givesAllBack(t, "messages", w)
}

// TestI11_BoundsCutNoMessage: with any room for a message that is passed on in pieces, the server gets it
// whole or the guest is told, and never a message without some of its pieces.
func TestI11_BoundsCutNoMessage(t *testing.T) {
	t.Parallel()
	for name, many := range map[string]int{"plain": 0, "values are put in": 12} {
		piecesAtTheBound(t, name, many)
	}
}

// piecesAtTheBound sends a message with so many placeholders of a long value.
func piecesAtTheBound(t *testing.T, name string, many int) {
	t.Helper()
	filler, value := strings.Repeat("0123456789abcdef ", 9<<10), strings.Repeat("vX", 2<<10)
	whole, refused := 0, 0
	for room := 0; room < 64 && (room < 8 || whole == 0); room++ {
		arrived := make(chan int, 1)
		secret := socketSecret(t)
		writeValue(t, &secret, value)
		w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
			_, payload, err := readTestMessage(r)
			if err != nil {
				payload = ""
			}
			arrived <- len(payload)
			_, _ = io.WriteString(conn, testFrame(false, 0x81, "done"))
			_, _ = io.Copy(io.Discard, r)
		}, withSecret(secret), withMemory(int64(room)*32<<10+200<<10))
		conn, r, resp := open(apiHost, apiAddr, "")
		if resp.StatusCode != http.StatusSwitchingProtocols {
			continue // no room for the connection
		}
		go func() {
			_, _ = io.WriteString(conn, testFrame(true, 0x82, filler+strings.Repeat(w.placeholder()+" ", many)+filler))
		}()
		size := 2*len(filler) + many*(len(value)+1)
		opcode, payload, err := readTestMessage(r)
		_ = conn.Close()
		switch got := <-arrived; {
		case err == nil && opcode == opText && payload == "done" && got == size:
			whole++
		case err == nil && opcode == opClose && payload == "\x03\xf5memory" && got == 0:
			refused++
		default:
			t.Errorf("%s, room %d: the server got %d bytes of %d, the guest %d %.100q, %v", name, room, got, size, opcode, payload, err)
		}
		givesAllBack(t, name, w)
	}
	if whole == 0 || refused == 0 {
		t.Errorf("%s: %d messages arrived and %d were refused: the bound was not tried from both sides", name, whole, refused)
	}
}
