package agentclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestRejoinFindsItsKey in whatever the guest sends before it, and gives back what comes behind.
func TestRejoinFindsItsKey(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("0123456789abcdef"), agentpb.ResumeKeyBytes/16)
	for _, stale := range []int{0, 1, 31, 32, 33, 32<<10 - 1, 32 << 10, 70_000} {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(key)))
			all := append(append(bytes.Repeat(key[:len(key)-1], stale)[:stale], key...), "new"...)
			for len(all) > 0 { // in pieces that cut the key in two
				n, _ := far.Write(all[:min(len(all), 16<<10+7)])
				all = all[n:]
			}
		}()
		conn, err := Rejoin(t.Context(), near, key)
		if err != nil {
			t.Fatalf("behind %d bytes: %v", stale, err)
		}
		rest := make([]byte, 3)
		if _, err := io.ReadFull(conn, rest); err != nil || string(rest) != "new" {
			t.Errorf("behind %d bytes: %q, %v", stale, rest, err)
		}
		_ = near.Close()
		_ = far.Close()
	}
}

// TestI11_StaleBytesAreBounded: a guest that sends without end, nothing at all, or ends.
func TestI11_StaleBytesAreBounded(t *testing.T) {
	t.Parallel()
	key := make([]byte, agentpb.ResumeKeyBytes)
	key[0] = 1
	for what, c := range map[string]struct {
		guest func(net.Conn)
		want  error
	}{
		"without end": {func(c net.Conn) {
			for b := make([]byte, 1<<20); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}, ErrProtocol},
		"nothing": {func(net.Conn) {}, ErrTimeout},
		"its end": {func(c net.Conn) { _ = c.Close() }, ErrAgentDead},
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(key)))
			c.guest(far)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if what == "nothing" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		if _, err := Rejoin(ctx, near, key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		cancel()
		_ = near.Close()
		_ = far.Close()
	}
}

// TestKeysMayComeInPieces: wherever the guest's stream cuts the key, and whatever part of it came before in vain.
func TestKeysMayComeInPieces(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("0123456789abcdef"), agentpb.ResumeKeyBytes/16)
	for cut := 1; cut < len(key); cut++ {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len(key)))
			for _, piece := range [][]byte{append([]byte("stale"), key[:cut]...), append(bytes.Clone(key[cut:]), "more"...), []byte("last")} {
				_, _ = far.Write(piece) // the other end may be closed
			}
		}()
		conn, err := Rejoin(t.Context(), near, key)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		var got []byte
		for b := make([]byte, 3); len(got) < 8; { // less than came with the key
			n, err := conn.Read(b)
			if err != nil {
				t.Fatalf("cut at %d: %q, %v", cut, got, err)
			}
			got = append(got, b[:n]...)
		}
		if string(got) != "morelast" {
			t.Errorf("cut at %d: %q", cut, got)
		}
		_ = near.Close()
		_ = far.Close()
	}
	if _, err := Rejoin(t.Context(), nil, key[1:]); !errors.Is(err, ErrProtocol) {
		t.Errorf("a short key: %v", err)
	}
}
