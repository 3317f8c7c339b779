package handoff

import (
	"context"
	"errors"
	"net"
	"testing"
)

func TestGivenConnectionsAreAccepted(t *testing.T) {
	l := New(&net.TCPAddr{})
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	done := make(chan error, 1)
	go func() { done <- l.Give(t.Context(), server) }()
	got, err := l.Accept()
	if err != nil || got != server {
		t.Fatalf("accepted %v, %v; want the connection that was given", got, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestGiveEndsWithItsListener(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	l := New(&net.TCPAddr{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Give(ctx, server); !errors.Is(err, context.Canceled) {
		t.Errorf("with its context done Give says %v", err)
	}
	_, _ = l.Close(), l.Close()
	if err := l.Give(t.Context(), server); !errors.Is(err, net.ErrClosed) {
		t.Errorf("with the listener closed Give says %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("with the listener closed Accept says %v", err)
	}
}

func TestOfGivesOneConnection(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	l := Of(server)
	if got, err := l.Accept(); err != nil || got != server {
		t.Fatalf("accepted %v, %v", got, err)
	}
	if l.Addr() != server.LocalAddr() {
		t.Errorf("the address is %v", l.Addr())
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("then Accept says %v", err)
	}
}
