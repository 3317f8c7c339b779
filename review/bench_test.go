package review_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
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

// benchmark reviews a capture that is on disk and prints the table, as `msb review` does, on one core.
// The file is in the page cache. Beside MB/s of capture it tells them for each second of CPU time, which
// is what they would be on a machine with nothing else to do, the flows, and the memory.
func benchmark(b *testing.B, file []byte, rounds int) {
	p, err := policies.Parse("bench.toml", []byte("version = 1\n[[egress.allow]]\nname = \"web\"\nhosts = [\"good.example\"]\nports = [443]\nprotocol = \"tls\"\n"), nil)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "bench.pcapng")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(f, newRepeated(file, rounds)); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.ReportAllocs()
	var report *review.Report
	before := cpu(b)
	for b.Loop() {
		if report, err = review.Run(b.Context(), review.Options{Captures: []string{path}, Policy: p}); err != nil {
			b.Fatal(err)
		}
		if err := report.WriteTable(io.Discard, false); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(report.Bytes)
	}
	b.StopTimer()
	b.ReportMetric(float64(report.Bytes)*float64(b.N)/1e6/(cpu(b)-before).Seconds(), "MB/CPU-s")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(report.Len()), "flows")
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-from-OS")
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-live")
	runtime.KeepAlive(report)
}

// cpu is the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkReview has "traffic", some 1,000 TLS connections and their lookups with 440 MB of downloads,
// eight at a time; "bulk", downloads one after the other; and "flows=N", N short connections in ten small
// packets each, where every 1.5 kB of capture is a flow to judge.
func BenchmarkReview(b *testing.B) {
	b.Run("traffic", func(b *testing.B) { benchmark(b, pcapgen.Traffic(128), 8) })
	b.Run("bulk", func(b *testing.B) { benchmark(b, pcapgen.Bulk(1400), 200) })
	for _, flows := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, pcapgen.Many(1000), flows/1000) })
	}
}
