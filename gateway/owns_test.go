package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// turncoat is a host to which every address belongs from the first dial or ping on.
type turncoat struct {
	*gatewaytest.Internet
	owns atomic.Bool
}

func (k *turncoat) Owns(egress.Proto, netip.AddrPort) bool { return k.owns.Load() }

// DialContext implements gateway.Dialer.
func (k *turncoat) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := k.Internet.DialContext(ctx, network, addr)
	if addr != gatewaytest.Resolver {
		k.owns.Store(true)
	}
	return c, err
}

// Ping implements gateway.Pinger.
func (k *turncoat) Ping(context.Context, netip.Addr, uint16, []byte) error {
	k.owns.Store(true)
	return nil
}

// The kernel is asked a last time when the socket stands: before the guest's handshake is completed, a byte of
// the guest's is sent or an answer goes back. asked = false is the twin.
func TestI5_ConnectedSocketsAreJudgedOnceMore(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(w *gatewaytest.World, asked bool) error{
		"tcp": func(w *gatewaytest.World, _ bool) error {
			c, err := w.Dial(netip.MustParseAddr(site), 80)
			if err == nil {
				_ = c.Close()
			}
			return err
		},
		"udp": func(w *gatewaytest.World, asked bool) error {
			c, err := w.Guest.DialUDP(netip.MustParseAddrPort(site + ":4433"))
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			_, _ = io.WriteString(c, "hello")
			if asked {
				return closed(t, w)
			}
			_, err = c.Read(make([]byte, 16))
			return err
		},
		"inspected": func(w *gatewaytest.World, _ bool) error {
			r, err := w.Client().Get("http://web.example.com:81/")
			if err == nil && r.Body.Close() == nil && r.StatusCode != http.StatusNoContent {
				err = io.ErrUnexpectedEOF
			}
			return err
		},
		"ping": func(w *gatewaytest.World, asked bool) error {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if !asked {
				return w.Guest.Ping(ctx, netip.MustParseAddr(site), []byte("hello"))
			}
			over := make(chan error, 1)
			go func() { over <- w.Guest.Ping(ctx, netip.MustParseAddr(site), []byte("hello")) }()
			why := closed(t, w)
			cancel()
			if <-over == nil {
				return nil
			}
			return why
		},
	} {
		for _, asked := range []bool{false, true} {
			var bytes atomic.Int64
			w := startTurncoat(t, asked)
			w.Serve(site+":80", func(c net.Conn) { n, _ := io.Copy(io.Discard, c); bytes.Add(n) })
			w.ServeUDP(site+":4433", func(b []byte) []byte { bytes.Add(int64(len(b))); return b })
			w.ServeHTTP(site+":81", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				bytes.Add(1)
				rw.WriteHeader(http.StatusNoContent)
			}))
			err := try(w, asked)
			w.Close()
			if (err != nil) != asked {
				t.Errorf("%s, kernel asked: %v: %v", name, asked, err)
			}
			if asked && bytes.Load() != 0 {
				t.Errorf("%s: the host was sent %d bytes", name, bytes.Load())
			}
		}
	}
}

// closed waits until the first flow is over, and returns why.
func closed(t *testing.T, w *gatewaytest.World) error {
	t.Helper()
	if why := w.Audit.Wait(t, audit.FlowClose, 1)[0].Message; why != "" {
		return errors.New(why)
	}
	return nil
}

func startTurncoat(t *testing.T, asked bool) *gatewaytest.World {
	p := gatewaytest.Policy(t, `[[egress.allow]]
cidrs = ["`+site+`/32"]
protocol = "tcp"
ports = [80]
[[egress.allow]]
cidrs = ["`+site+`/32"]
protocol = "udp"
ports = [4433]
[[egress.allow]]
cidrs = ["`+site+`/32"]
protocol = "icmp"
[[egress.allow]]
hosts = ["web.example.com"]
protocol = "http"
ports = [81]
`)
	k := new(turncoat)
	w := gatewaytest.StartWith(t, p, func(c *gateway.Config) {
		k.Internet, _ = c.Dialer.(*gatewaytest.Internet)
		c.Dialer, c.Pinger, c.Owns = k, k, k.Owns
		if !asked {
			c.Owns = func(egress.Proto, netip.AddrPort) bool { return false }
		}
	})
	w.Record("web.example.com. 60 IN A " + site)
	return w
}

// flipping is a host to which every address belongs once a flow was let through.
type flipping struct {
	audit.Sink
	owns atomic.Bool
}

func (f *flipping) Emit(e audit.Event) {
	if e.Kind == audit.FlowOpen && e.Action == "allow" {
		f.owns.Store(true)
	}
	f.Sink.Emit(e)
}

// TestI5_PingsAreJudgedBeforeTheyLeave: the engine has allowed the address when it becomes the host's. asked = false is
// the twin.
func TestI5_PingsAreJudgedBeforeTheyLeave(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		p := gatewaytest.Policy(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"icmp\"\n")
		w := gatewaytest.StartWith(t, p, func(c *gateway.Config) {
			f := &flipping{Sink: c.Audit}
			c.Audit = f
			c.Owns = func(egress.Proto, netip.AddrPort) bool { return asked && f.owns.Load() }
		})
		w.AnswerPings(netip.MustParseAddr(site))
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		over := make(chan error, 1)
		go func() { over <- w.Guest.Ping(ctx, netip.MustParseAddr(site), []byte("hello")) }()
		w.Audit.Wait(t, audit.FlowClose, 1)
		if !asked {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		cancel()
		if left := len(w.Dialled()) > 0; left == asked {
			t.Errorf("kernel asked: %v, a ping left: %v", asked, left)
		}
		if asked {
			<-over
		}
	}
}
