package supervisor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// maxPeerMessage bounds the JSON of a peerRequest and of its answer, in bytes.
	maxPeerMessage = 2 << 10
	// peerWait bounds how long either end waits for the other's message. The called one's guest may take a while.
	peerWait = 15 * time.Second
)

// peerRequest begins a connection from one supervisor to another, behind its length in two bytes. The connection carries
// the guests' bytes once the peerAnswer has no error.
type peerRequest struct {
	// From is the name of the sandbox that calls. It is trusted: only the user of both sandboxes can connect to the
	// socket.
	From string `json:"from"`
	Port uint16 `json:"port"`
}

type peerAnswer struct {
	Error string `json:"error,omitempty"`
}

var errPeerMessage = errors.New("a message of another sandbox's supervisor is too long")

func writePeer(c net.Conn, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxPeerMessage {
		return errPeerMessage
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	return err
}

// readPeer reads no byte behind the message.
func readPeer(c net.Conn, message any) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxPeerMessage {
		return errPeerMessage
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	return json.Unmarshal(body, message)
}

// peers are the other sandboxes with a name: those that call, and those that are called.
type peers struct {
	s        *supervisor
	listener *net.UnixListener
}

// open makes the socket over which other sandboxes call one with a name. The policy says who may.
func (p *peers) open() (err error) {
	if p.s.plan.Name == "" || p.s.plan.NoNet {
		return nil
	}
	p.listener, err = state.ListenPeer(p.s.plan.Dir)
	return err
}

// serve answers calls until the sandbox ends.
func (p *peers) serve() {
	if p.listener == nil {
		return
	}
	stop := context.AfterFunc(p.s.ctx, func() { _ = p.listener.Close() })
	p.s.work.Go(func() {
		defer stop()
		for {
			c, err := p.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as too many open files
				select {
				case <-p.s.ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				continue
			}
			p.s.work.Go(func() { p.answer(c) })
		}
	})
}

// answer serves one call.
func (p *peers) answer(c net.Conn) {
	defer context.AfterFunc(p.s.ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(peerWait))
	var request peerRequest
	if readPeer(c, &request) != nil || state.CheckName(request.From) != nil {
		_ = c.Close()
		return
	}
	gateway.ServePeer(p.s.ctx, p.s.gateway, c, request.From, request.Port, func(refused error) error {
		return reply(c, refused)
	})
}

// reply ends the messages of a call: what follows has no deadline.
func reply(c net.Conn, refused error) error {
	var answer peerAnswer
	if refused != nil {
		answer.Error = refused.Error()
	}
	return errors.Join(writePeer(c, answer), c.SetDeadline(time.Time{}))
}

// dial implements gateway.Config.DialSandbox.
func (p *peers) dial(ctx context.Context, name string, port uint16) (net.Conn, error) {
	if p.s.plan.Name == "" {
		return nil, errors.New("only a sandbox with a name can connect to another one")
	}
	if err := state.CheckName(name); err != nil {
		return nil, err
	}
	c, err := state.DialPeer(filepath.Join(p.s.plan.Home, state.NamedDir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = state.ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	if err := p.call(ctx, c, port); err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, errors.Join(err, c.Close()))
	}
	return c, nil
}

func (p *peers) call(ctx context.Context, c net.Conn, port uint16) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if err := c.SetDeadline(time.Now().Add(peerWait)); err != nil {
		return err
	}
	var answer peerAnswer
	if err := writePeer(c, peerRequest{p.s.plan.Name, port}); err != nil {
		return err
	}
	if err := readPeer(c, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return c.SetDeadline(time.Time{})
}
