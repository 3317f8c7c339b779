package diskstore

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkGiB is a disk of 10 GiB with 1 GiB of bytes that can't be compressed in it: the first snapshot of it, one after
// nothing has changed, a disk made of it, and a copy of the disk.
func BenchmarkGiB(b *testing.B) {
	const data = 1 << 30
	b.ReportAllocs()
	dir := b.TempDir()
	disk := filepath.Join(dir, "disk")
	f, err := os.Create(disk)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, chunkBytes)
	for at := int64(0); at < data; at += chunkBytes {
		_, _ = rand.Read(buf)
		if _, err := f.WriteAt(buf, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Truncate(10 * data); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	_ = f.Close()
	take := func(b *testing.B, s *Store, name string) {
		b.Helper()
		w, err := s.Begin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		list, err := w.Add(b.Context(), disk)
		if err == nil {
			err = w.Commit(name, aMeta(), list)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	store := func(b *testing.B) *Store {
		b.Helper()
		s, err := Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	b.Run("first", func(b *testing.B) {
		b.SetBytes(data)
		for b.Loop() {
			b.StopTimer()
			s := store(b)
			b.StartTimer()
			take(b, s, "a")
			b.StopTimer()
			_ = os.RemoveAll(s.dir)
			b.StartTimer()
		}
	})
	s := store(b)
	take(b, s, "a")
	b.Run("unchanged", func(b *testing.B) {
		b.SetBytes(data)
		for b.Loop() {
			take(b, s, "again")
			b.StopTimer()
			if err := s.Remove("again"); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	to := filepath.Join(dir, "to")
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(data)
		for b.Loop() {
			if _, err := s.WriteDisk(b.Context(), "a", to); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = os.Remove(to)
			b.StartTimer()
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(data)
		for b.Loop() {
			if err := CopyDisk(b.Context(), to, disk); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = os.Remove(to)
			b.StartTimer()
		}
	})
}
