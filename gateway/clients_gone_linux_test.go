package gateway_test

import (
	"io"
	"net"
	"testing"
	"time"

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
