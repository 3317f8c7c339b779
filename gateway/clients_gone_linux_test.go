package gateway_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI11_GuestsKeepNoGoneClients: a client has sent its end and is gone, and the guest's server never closes. The twin
// waits for an answer.
func TestI11_GuestsKeepNoGoneClients(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{true, false} {
		w := gatewaytest.Start(t, "")
		server, err := w.Guest.ListenTCP(8080)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := publish(t, w, 8080)
		dialled, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client, ok := dialled.(*net.TCPConn)
		if !ok {
			t.Fatalf("%T", dialled)
		}
		guest, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = client.CloseWrite()
		if _, err := guest.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as it is
			t.Fatalf("the client's end: %v", err)
		}
		if waits {
			w.Gateway.Used()
			if !w.Gateway.Used() {
				t.Error("a client that waits for an answer is no use")
			}
			_ = client.Close()
			continue
		}
		_ = client.SetLinger(0) // what its kernel answers a minute later
		_ = client.Close()
		for end := time.Now().Add(time.Minute); w.Gateway.Used(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a client that is gone stays a use, as long as the guest keeps its end")
			}
		}
		if w.Gateway.Stats().Clients != 1 {
			t.Error("the guest's end was closed")
		}
	}
}

// TestI11_GuestsKeepNoGoneCallers: a caller has sent its end and is gone, and the guest's server never closes. The twin waits for an
// answer.
func TestI11_GuestsKeepNoGoneCallers(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{true, false} {
		w := gatewaytest.Start(t, fromMe)
		w.Resolve("up.example", dns.TypeA) // the link is up then
		server, err := w.Guest.ListenTCP(5432)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := unixPair(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			gateway.ServePeer(t.Context(), w.Gateway, theirs, "web", 5432, func(error) error { return nil })
		}()
		guest, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = ours.(*net.UnixConn).CloseWrite()
		if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("the caller's end: %v", err)
		}
		if waits {
			w.Gateway.Used()
			if !w.Gateway.Used() {
				t.Error("a caller that waits for an answer is no use")
			}
		}
		_ = ours.Close()
		for end := time.Now().Add(time.Minute); !waits && w.Gateway.Used(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a caller that is gone stays a use, as long as the guest keeps its end")
			}
		}
		w.Close()
		<-ended
	}
}
