package secretproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
)

// windowOf is what a stream of an answer keeps at most, with the values that there are.
func windowOf(w *world) int64 {
	return int64(mask.NewAnswerStream(nil, nil, true).Follow(w.proxy.known.needles).Bound())
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestI11_GrownWindowsAreCounted: a value of 8 KiB is new while an answer or a message is under way. What that keeps
// more from then on is in the budget, and where there is no room for it, it ends.
func TestI11_GrownWindowsAreCounted(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("a1b2C3d4", 8<<10) // of one word, of which a live stream keeps a window
	const first, second = 5, 24                // pieces: more than a message that is held whole, more than two windows
	try := func(kind string, room bool) {
		more, end := make(chan struct{}), make(chan struct{})
		say := func(write func(last bool)) {
			for range first {
				write(false)
			}
			<-more
			for range second {
				write(false)
			}
			<-end
			write(true)
		}
		w, open := socketWorld(t, func(conn net.Conn, r *bufio.Reader) {
			opcode := byte(0x02)
			say(func(last bool) {
				if last {
					opcode |= 0x80
				}
				_, _ = io.WriteString(conn, testFrame(false, opcode, piece))
				opcode = 0
			})
			_, _ = io.Copy(io.Discard, r)
		}, withSecret(socketSecret(t)), func(_ *policies.Policy, c *Config) { c.halfClose = time.Millisecond })
		upgrade := w.api.Config.Handler
		w.api.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if kind == "message" {
				upgrade.ServeHTTP(rw, r)
				return
			}
			if kind == "length" {
				rw.Header().Set("Content-Length", strconv.Itoa((first+second+1)*len(piece)))
			}
			say(func(bool) {
				_, _ = io.WriteString(rw, piece)
				_ = http.NewResponseController(rw).Flush()
			})
		})
		var in io.Reader
		if kind == "message" {
			_, r, _ := open(apiHost, apiAddr, "")
			in = r
		} else {
			resp, err := w.client(apiHost, apiAddr, false).Do(request(t, "GET", "https://"+apiHost+"/", nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			in = resp.Body
		}
		var came atomic.Int64
		left := make(chan struct{})
		go func() {
			defer close(left)
			_, _ = io.Copy(counter{&came}, in)
		}()
		used := func() int64 { s := w.proxy.Stats(); return s.Held - s.Values }
		before, was := windowOf(w), int64(0)
		// The proxy has read all that there is, and nothing of it is on its way any more. An answer with a length is written
		// through net/http's buffer, which keeps less than 8 KiB.
		eventually(t, kind+": what came first isn't passed on", func() bool {
			last := was
			was = used()
			return came.Load() >= int64(first*len(piece))-before-8<<10 && was == last
		})
		const little = 1 << 19 // room for the new value's spellings, not for the windows of a stream that searches for them
		if !room {             // before the value is new: what is read from then on may be the end of what came first
			w.proxy.memory.Take(memoryLimit - w.proxy.Stats().Held - little)
		}
		s := secretIn(t)
		if _, err := w.proxy.known.keep([]byte(strings.Repeat("Zz9_", 2<<10)), &s, "msb_x"); err != nil {
			t.Fatal(err)
		}
		grown := windowOf(w) - before
		if grown < 2*little {
			t.Fatalf("%s: the windows grow by %d bytes", kind, grown)
		}
		close(more)
		if room {
			eventually(t, kind+": what is kept isn't counted", func() bool { return used() >= was+grown-little/4 })
		} else {
			eventually(t, kind+": it goes on without room", func() bool {
				return slices.ContainsFunc(w.events.of(audit.HTTPRequest), func(e audit.Event) bool { return e.Reason == "memory" })
			})
		}
		close(end)
		if kind == "message" && room {
			return // the connection stays
		}
		<-left
		if n := came.Load(); (n >= int64((first+second)*len(piece))) != room {
			t.Errorf("%s, room %v: the guest got %d bytes", kind, room, n)
		}
	}
	for _, kind := range []string{"length", "live", "message"} {
		for _, room := range []bool{true, false} {
			try(kind, room)
		}
	}
}
