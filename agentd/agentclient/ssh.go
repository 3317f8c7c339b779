package agentclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// SSH carries a connection of an SSH client to the sandbox's SSH server: the client's bytes from in, the server's to out.
// The end of in is the end of the client's half. SSH returns when the server has ended; a Read of in that is under way is
// left behind then. notice gets what the client's user is to know.
func (c *Client) SSH(ctx context.Context, in io.Reader, out io.Writer, notice func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := c.supervisor.SSH(ctx)
	if err != nil {
		return c.callError(ctx, err)
	}
	go func() {
		buf := make([]byte, agentpb.ChunkBytes)
		for {
			n, err := in.Read(buf)
			if n > 0 && call.Send(&agentpb.SSHRequest{Data: buf[:n]}) != nil {
				return // Recv has the call's error
			}
			if err != nil { // a client that fails has gone, too
				_ = call.CloseSend() // as above
				return
			}
		}
	}()
	for {
		m, err := call.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case status.Code(err) == codes.Unimplemented:
			return errOldSupervisor
		case err != nil:
			return c.callError(ctx, err)
		}
		switch r := m.GetResponse().(type) {
		case *agentpb.SSHResponse_Data:
			if _, err := out.Write(r.Data); err != nil {
				return err
			}
		case *agentpb.SSHResponse_Notice:
			notice(guestText(r.Notice))
		case *agentpb.SSHResponse_Error:
			return errors.New(guestText(r.Error))
		}
	}
}

// sshFlush bounds the wait for a client that doesn't read the last bytes.
const sshFlush = 5 * time.Second

// SSH implements agentpb.SupervisorServer.
func (a *supervisorAdapter) SSH(call grpc.BidiStreamingServer[agentpb.SSHRequest, agentpb.SSHResponse]) error {
	if a.ssh == nil {
		return a.UnimplementedSupervisorServer.SSH(call)
	}
	in, fromClient := io.Pipe()
	toClient, out := io.Pipe()
	s := &sshCall{call: call}
	go s.receive(fromClient) // until the call ends
	ended := make(chan error, 1)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		s.sendFrom(toClient)
		if err := <-ended; err != nil {
			_ = s.send(&agentpb.SSHResponse{Response: &agentpb.SSHResponse_Error{Error: err.Error()}}) // as in notice
		}
	}()
	conn := &sshConn{in, out}
	err := a.ssh(conn, s.notice)
	_ = conn.Close()               // has no error
	if errors.Is(err, ErrClosed) { // the session ends, and its client finds out why
		ended <- nil
		return statusOf(err)
	}
	ended <- err
	select {
	case <-flushed:
	case <-time.After(sshFlush): // the call's end ends what waits
	}
	return nil
}

// sshCall carries the bytes of a client between its call and pipes: what waits in a call ends with the call alone.
type sshCall struct {
	call grpc.BidiStreamingServer[agentpb.SSHRequest, agentpb.SSHResponse]
	mu   sync.Mutex // held while a message is sent
}

func (s *sshCall) receive(to *io.PipeWriter) {
	for {
		m, err := s.call.Recv()
		if err == nil {
			_, err = to.Write(m.GetData())
		}
		if err != nil {
			_ = to.Close() // a client whose call fails has gone; Close has no error
			return
		}
	}
}

// sendFrom returns when from's other end is closed, or the client has gone.
func (s *sshCall) sendFrom(from *io.PipeReader) {
	defer func() { _ = from.Close() }() // has no error; the server's next Write has one
	buf := make([]byte, agentpb.ChunkBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 && s.send(&agentpb.SSHResponse{Response: &agentpb.SSHResponse_Data{Data: buf[:n]}}) != nil || err != nil {
			return
		}
	}
}

func (s *sshCall) notice(text string) {
	_ = s.send(&agentpb.SSHResponse{Response: &agentpb.SSHResponse_Notice{Notice: text}}) // its only error is that the client has gone
}

func (s *sshCall) send(m *agentpb.SSHResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call.Send(m)
}

// sshConn is a client as the SSH server sees it.
type sshConn struct {
	*io.PipeReader
	out *io.PipeWriter
}

func (c *sshConn) Write(b []byte) (int, error) { return c.out.Write(b) }

// Close ends both directions, and a Read or Write that waits.
func (c *sshConn) Close() error { return errors.Join(c.PipeReader.Close(), c.out.Close()) }
