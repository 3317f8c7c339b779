//go:build linux

package guestwork

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Pattern is what each MiB of a large file holds.
func Pattern() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// stream writes a file in order, synced, and reads it with nothing cached.
func (f Values) stream(path string, mib int) error {
	rate := func(began time.Time) float64 { return float64(mib) / time.Since(began).Seconds() }
	buf := Pattern()
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	began := time.Now()
	for range mib {
		if _, err := w.Write(buf); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		return err
	}
	f.add(Write, rate(began))
	if err := DropCaches(); err != nil {
		return err
	}
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was read
	began = time.Now()
	if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf); err != nil || n != int64(mib)<<20 {
		return fmt.Errorf("read %d bytes: %w", n, err)
	}
	f.add(Read, rate(began))
	return os.Remove(path)
}

// WriteFile writes a new file of whole MiB.
func WriteFile(path string, mib int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	part := Pattern()
	for range mib {
		if _, err = f.Write(part); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}
