package capture

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

func BenchmarkPacket(b *testing.B) {
	for _, n := range []int{60, 1514, 65000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := NewWriter(io.Discard, Options{})
			f := frame(1, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				w.Packet(FromGuest, f, "")
			}
			_ = w.Close()
			taken, lost := w.Stats()
			b.ReportMetric(float64(lost)/float64(taken+lost), "lost")
		})
	}
}

func BenchmarkPackets(b *testing.B) {
	for _, n := range []int{1, 4, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := NewWriter(io.Discard, Options{})
			var frames inParts
			for range n {
				f := frame(1, 1514)
				frames = append(frames, [][]byte{f[:54], f[54:]})
			}
			b.SetBytes(int64(1514 * n))
			b.ReportAllocs()
			for b.Loop() {
				w.Packets(ToGuest, frames)
			}
			_ = w.Close()
		})
	}
}

func BenchmarkRead(b *testing.B) {
	var out buffer
	w := NewWriter(&out, Options{Queue: 1 << 30})
	for i := range 20000 {
		w.Packet(Direction(i%2), frame(i, 1514), "")
	}
	_ = w.Close()
	b.SetBytes(int64(out.Len()))
	b.ReportAllocs()
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(out.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			var rec *Record
			if rec, err = r.Next(); err == nil {
				_, _ = Decode(rec.Frame)
			}
		}
	}
}
