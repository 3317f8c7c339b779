package review_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
	"github.com/msb-project/msb/review/pcapgen"
)

// repeated is a capture that goes on: the same frames again and again, each time from other ports of the
// guest, then to other addresses, so that nearly all connections of 900 rounds of a thousand differ. It
// is made while it is read.
type repeated struct {
	head   []byte
	round  []byte
	tcp    []place
	rounds int
	buf    []byte
	n      int
}

// place is a TCP packet in a round: where its sequence number, the guest's port and the last byte of the
// peer's address are.
type place struct {
	seq, port, addr int
	base            uint16
}

func newRepeated(file []byte, rounds int) *repeated {
	r := &repeated{rounds: rounds}
	packets := false
	for at := 0; at < len(file); {
		n := int(binary.LittleEndian.Uint32(file[at+4:]))
		block := file[at : at+n]
		at += n
		if binary.LittleEndian.Uint32(block) != 6 {
			if !packets {
				r.head = append(r.head, block...)
			}
			continue
		}
		packets = true
		if h, ok := capture.Decode(block[28 : 28+binary.LittleEndian.Uint32(block[20:])]); ok && h.Transport == capture.TransportTCP {
			ip := len(r.round) + 28 + 14
			p := place{seq: ip + 24, port: ip + 20, addr: ip + 19, base: h.Src.Port()}
			if h.Src.Addr() != pcapgen.Guest4 {
				p.port, p.addr, p.base = ip+22, ip+15, h.Dst.Port()
			}
			r.tcp = append(r.tcp, p)
		}
		r.round = append(r.round, block...)
	}
	r.buf = bytes.Clone(r.head)
	return r
}

// Read implements io.Reader.
func (r *repeated) Read(p []byte) (int, error) {
	if len(r.buf) == 0 {
		if r.n == r.rounds {
			return 0, io.EOF
		}
		for _, p := range r.tcp {
			binary.BigEndian.PutUint32(r.round[p.seq:], binary.BigEndian.Uint32(r.round[p.seq:])+1_000_003)
			binary.BigEndian.PutUint16(r.round[p.port:], p.base+uint16(1000*(r.n%60)))
			r.round[p.addr] = byte(1 + (int(p.base)+r.n/60)%16)
		}
		r.n++
		r.buf = r.round
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func benchmark(b *testing.B, file []byte, rounds int, p *policies.Policy) {
	var report *review.Report
	for b.Loop() {
		var err error
		if report, err = review.Read(b.Context(), "bench", newRepeated(file, rounds), review.Options{Policy: p}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(report.Bytes)
	}
	b.StopTimer()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(report.Len()), "flows")
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-from-OS")
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-live")
	runtime.KeepAlive(report)
}

// bulk is a download of 1,400 segments on one connection.
func bulk(b *testing.B) []byte {
	b.Helper()
	return pcapgen.Bulk(1400)
}

func BenchmarkReview(b *testing.B) {
	p, err := policies.Parse("bench.toml", []byte("version = 1\n[[egress.allow]]\nname = \"web\"\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n"), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bulk", func(b *testing.B) { benchmark(b, bulk(b), 200, p) })
	for _, flows := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, pcapgen.Many(1000), flows/1000, p) })
	}
}
