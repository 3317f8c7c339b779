package gateway_test

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// BenchmarkBulk sends bulk data out of a guest, with and without a capture of every frame.
func BenchmarkBulk(b *testing.B) {
	for _, name := range []string{"off", "on"} {
		b.Run("capture="+name, func(b *testing.B) {
			c := gateway.NewCaptureTap()
			p := gatewaytest.Policy(b, "[[egress.allow]]\nname = \"sink\"\ncidrs = [\"93.184.215.20/32\"]\nports = [9]\nprotocol = \"tcp\"\n")
			world := gatewaytest.StartWith(b, p, func(cfg *gateway.Config) { cfg.Capture = c })
			received := make(chan struct{})
			const total = 1 << 20
			chunk := make([]byte, 64<<10)
			world.Serve("93.184.215.20:9", func(conn net.Conn) {
				for {
					if _, err := io.CopyN(io.Discard, conn, total); err != nil {
						return
					}
					received <- struct{}{}
				}
			})
			if name == "on" {
				w, err := capture.Create(filepath.Join(b.TempDir(), "bulk.pcapng"), capture.Options{Keep: 1})
				if err != nil {
					b.Fatal(err)
				}
				c.Start(w)
				defer func() {
					taken, lost := w.Stats()
					b.ReportMetric(100*float64(lost)/float64(taken+lost+1), "%lost")
					if err := c.Start(nil).Close(); err != nil {
						b.Error(err)
					}
				}()
			}
			conn, err := world.Dial(netip.MustParseAddr("93.184.215.20"), 9)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			b.SetBytes(total)
			for b.Loop() {
				for n := 0; n < total; n += len(chunk) {
					if _, err := conn.Write(chunk); err != nil {
						b.Fatal(err)
					}
				}
				<-received
			}
		})
	}
}
