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
