package agentclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// recorder keeps what a fake agent sent.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	r.sent = append(r.sent, p[:n]...)
	r.mu.Unlock()
	return n, err
}

// recordSession returns the bytes of an honest agent: what it sends before the
// first call, and after.
func recordSession(f *testing.F) (first, rest []byte) {
	f.Helper()
	host := &recorder{Conn: serveFake(f, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
		for _, m := range []*agentpb.ExecResponse{started, output, exit(&agentpb.Exit{Code: 3})} {
			if err := s.Send(m); err != nil {
				return err
			}
		}
		return nil
	}})}
	c, err := Dial(f.Context(), host, Options{})
	if err == nil {
		_, err = c.Exec(f.Context(), ExecOptions{Argv: []string{"x"}})
		c.Close()
	}
	if err != nil {
		f.Fatal(err)
	}
	const settings = 9 + 6 // one setting, the largest frame
	host.mu.Lock()
	defer host.mu.Unlock()
	n := min(settings, len(host.sent))
	return host.sent[:n], host.sent[n:]
}

// FuzzAgentStream feeds a client what a hostile guest could send. Whatever it
// is, Dial and Exec return, with an error that this package names.
func FuzzAgentStream(f *testing.F) {
	first, rest := recordSession(f)
	f.Add(first, rest)
	f.Add(first, rest[:len(rest)/2])
	f.Fuzz(func(t *testing.T, first, rest []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		host, guest := net.Pipe()
		talked := make(chan struct{})
		go func() {
			defer close(talked)
			defer guest.Close()
			asked := awaitCall(guest)
			if _, err := guest.Write(first); err != nil {
				return
			}
			select {
			case <-asked:
			case <-time.After(50 * time.Millisecond): // a first part that lets no call come
			}
			_, _ = guest.Write(rest)
		}()
		c, err := Dial(ctx, host, Options{})
		if err == nil {
			_, err = c.Exec(ctx, ExecOptions{Argv: []string{"x"}})
			c.Close()
		}
		<-talked
		if err == nil {
			return // a whole session, as the recorded seed is
		}
		for _, named := range []error{ErrProtocol, errTooLarge, ErrVersion, ErrAgentDead, ErrBusy, ErrRefused, ErrTimeout} {
			if errors.Is(err, named) && ctx.Err() == nil {
				return
			}
		}
		t.Errorf("an error without a name: %v", err)
	})
}
