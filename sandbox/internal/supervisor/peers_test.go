package supervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// callable is a sandbox with a name that runs, of which others know.
func callable(t *testing.T, home, name, policy string) *supervised {
	t.Helper()
	plan := newPlan(t, home, name)
	plan.NoNet, plan.Policy, plan.PolicyName = false, policy, "policy"
	s, info := superviseFake(t, &guestVM{}, plan)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	t.Cleanup(func() { s.cancel(errCallerGone); must(t, <-s.ended) }) // it writes into its directory
	return s
}

// TestI15_SandboxesAreCalledByName: the error says what prevents it. Where both policies agree, the guest is asked:
// this one doesn't answer.
func TestI15_SandboxesAreCalledByName(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	web := callable(t, home, "web", "version = 1\n")
	callable(t, home, "shut", "version = 1\n")
	db := callable(t, home, "db", "version = 1\n[[ingress.allow]]\nsandboxes = [\"web\"]\nports = [5432]\n")
	left, err := state.ListenPeer(newNamed(t, home, "killed")) // whose socket is still there
	must(t, err)
	must(t, left.Close())
	for name, want := range map[string]string{"shut": "[[ingress.allow]]", "nobody": "not running", "killed": "not running", "../web": "name"} {
		if c, err := web.peers.dial(t.Context(), name, 5432); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want an error with %q", name, c, err, want)
		}
	}
	if _, err := web.peers.dial(t.Context(), "db", 5433); err == nil || !strings.Contains(err.Error(), "[[ingress.allow]]") {
		t.Errorf("another port: %v", err)
	}
	if _, err := db.peers.dial(t.Context(), "db", 5432); err == nil || !strings.Contains(err.Error(), "[[ingress.allow]]") {
		t.Errorf("another sandbox: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := web.peers.dial(short, "db", 5432); err == nil || strings.Contains(err.Error(), "[[ingress.allow]]") {
		t.Errorf("a guest that doesn't answer: %v", err)
	}
	nameless := newSupervisor(&state.Plan{Home: home}, nil, nil)
	if _, err := nameless.peers.dial(t.Context(), "db", 5432); err == nil || !strings.Contains(err.Error(), "with a name") {
		t.Errorf("a sandbox without a name: %v", err)
	}
}

// TestAnsweredCallsHaveNoDeadline: that of the messages does not end the connection which they begin, nor does the context
// of the dial. Its twin is a call that is not answered.
func TestAnsweredCallsHaveNoDeadline(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			caller, called := net.Pipe()
			defer func() { must(t, errors.Join(caller.Close(), called.Close())) }()
			go func() {
				var request peerRequest
				if err := errors.Join(called.SetDeadline(time.Now().Add(peerWait)), readPeer(called, &request)); err != nil || !answered {
					return
				}
				_ = reply(called, nil)
				_, _ = io.Copy(called, called)
				_ = called.Close()
			}()
			ctx, cancel := context.WithCancel(t.Context())
			p := &peers{s: newSupervisor(new(state.Plan), nil, nil)}
			begun := time.Now()
			err := p.call(ctx, caller, 5432)
			cancel()
			if !answered {
				if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took != peerWait {
					t.Errorf("no answer: %v after %s", err, took)
				}
				return
			}
			must(t, err)
			time.Sleep(2 * peerWait)
			got := make([]byte, 4)
			_, err = caller.Write([]byte("late"))
			if err == nil {
				_, err = io.ReadFull(caller, got)
			}
			if err != nil || string(got) != "late" {
				t.Errorf("%s after the answer: %q, %v", 2*peerWait, got, err)
			}
		})
	}
}

// TestI12_BadPeerMessagesEndTheCall: what is no request is answered by the end of the connection, and others are served.
func TestI12_BadPeerMessagesEndTheCall(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	s := callable(t, home, "db", "version = 1\n")
	framed := func(text string) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
	}
	for i, message := range [][]byte{
		framed("null}"), framed(`{"from":5}`), framed(`{"from":"../web","port":1}`), framed(`{"from":"","port":1}`),
		framed(strings.Repeat("a", maxPeerMessage+1)), {0xff, 0xff}, {0},
	} {
		c, err := state.DialPeer(s.plan.Dir)
		must(t, err)
		_, err = c.Write(message)
		must(t, err)
		if u, ok := c.(*net.UnixConn); ok {
			must(t, u.CloseWrite())
		}
		must(t, c.SetReadDeadline(time.Now().Add(peerWait)))
		if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%d: answered %q", i, got)
		}
		must(t, c.Close())
	}
	a, b := net.Pipe()
	go func() { _, _ = a.Write(append(framed(`{"error":"x"}`), "behind"...)) }()
	var answer peerAnswer
	must(t, readPeer(b, &answer))
	rest := make([]byte, 6)
	if _, err := io.ReadFull(b, rest); err != nil || !bytes.Equal(rest, []byte("behind")) || answer.Error != "x" {
		t.Errorf("%+v, then %q", answer, rest)
	}
	go func() { must(t, readPeer(b, &answer)) }()
	must(t, writePeer(a, peerAnswer{strings.Repeat("a", maxPeerMessage-len(`{"error":""}`))})) // as long as one may be
	if err := writePeer(a, peerAnswer{strings.Repeat("a", maxPeerMessage)}); !errors.Is(err, errPeerMessage) {
		t.Errorf("a long answer: %v", err)
	}
}

// TestI11_PeerMessagesAreBounded: what is longer is refused by its length, however well it is formed.
func TestI11_PeerMessagesAreBounded(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64, maxPeerMessage, maxPeerMessage + 1, 1<<16 - 1} {
		a, b := net.Pipe()
		message := fmt.Appendf(binary.BigEndian.AppendUint16(nil, uint16(size)), "%-*s", size, `{"from":"web","port":1}`)
		go func() { _, _ = a.Write(message) }()
		var request peerRequest
		if err := readPeer(b, &request); errors.Is(err, errPeerMessage) != (size > maxPeerMessage) || err == nil && request.From != "web" {
			t.Errorf("%d bytes: %+v, %v", size, request, err)
		}
		must(t, errors.Join(a.Close(), b.Close()))
	}
}
