package agentclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Client is a session with one guest agent. Its methods may be called from
// several goroutines.
type Client struct {
	conn       *grpc.ClientConn
	api        agentpb.AgentClient
	files      agentpb.FilesClient
	jobs       agentpb.JobsClient
	ports      agentpb.PortsClient
	supervisor agentpb.SupervisorClient
	loopback   agentpb.LoopbackClient
	dirs       agentpb.DirectoriesClient
	info       Info
	execs      atomic.Uint64 // that clients of Serve asked for
	conns      agentpb.ConnectionsClient
	freezer    agentpb.FreezerClient
	search     agentpb.SearchClient
	containers agentpb.ContainersClient
	// archiveChunk is how much of an archive a message has, in bytes.
	archiveChunk int

	// leaving is set by Shutdown, after which the guest ends the session itself.
	leaving atomic.Bool

	mu    sync.Mutex
	err   error
	done  chan struct{}
	close func() error
}

// Dial opens a session over rwc, which becomes the client's own: it is closed
// when Dial fails, when the session ends, and by Close. Dial returns once the
// guest is configured as opts say.
func Dial(ctx context.Context, rwc io.ReadWriteCloser, opts Options) (*Client, error) {
	timeout := opts.HandshakeTimeout
	if timeout <= 0 {
		timeout = agentpb.HandshakeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := newClient(rwc, agentpb.FileChunkBytes, agentpb.StreamWindowBytes)
	if err != nil {
		return nil, err
	}
	if err := c.handshake(ctx, opts); err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return c, nil
}

// Attach opens a session over a stream whose other end is Serve: the handshake
// was done by the process that serves. rwc becomes the client's own.
func Attach(rwc io.ReadWriteCloser) (*Client, error) {
	return newClient(rwc, agentpb.ArchiveChunkBytes, agentpb.ClientWindowBytes)
}

func newClient(rwc io.ReadWriteCloser, archiveChunk int, window int32) (*Client, error) {
	closed := sync.OnceValue(rwc.Close)
	c := &Client{archiveChunk: archiveChunk, done: make(chan struct{}), close: closed}
	s := &stream{ReadWriteCloser: rwc, close: closed, ended: c.streamEnded}
	once := make(chan *stream, 1)
	once <- s
	conn, err := grpc.NewClient("passthrough:///agent",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case s := <-once:
				return s, nil
			default:
				// A second connection means that the peer gave the first up.
				c.streamEnded(nil)
				_ = c.close() // the reason is recorded already
				return nil, errStreamUsed
			}
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		// Idleness would close the stream, which can't be opened again.
		grpc.WithIdleTimeout(0),
		// The caller's context bounds the handshake, not gRPC's 20 s.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Hour}),
		grpc.WithMaxHeaderListSize(agentpb.MaxHeaderBytes),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(4*window),
		experimental.WithBufferPool(agentpb.NewBufferPool()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(agentpb.MaxMessageBytes),
			grpc.MaxCallSendMsgSize(agentpb.MaxMessageBytes)),
	)
	if err != nil {
		rwc.Close()
		return nil, fmt.Errorf("agent session: %w", err)
	}
	conn.Connect() // before the first call, which may come late: Serve ends connections that don't greet it
	c.conn, c.api, c.files, c.jobs = conn, agentpb.NewAgentClient(conn), agentpb.NewFilesClient(conn), agentpb.NewJobsClient(conn)
	c.dirs, c.ports, c.loopback = agentpb.NewDirectoriesClient(conn), agentpb.NewPortsClient(conn), agentpb.NewLoopbackClient(conn)
	c.conns, c.supervisor, c.freezer = agentpb.NewConnectionsClient(conn), agentpb.NewSupervisorClient(conn), agentpb.NewFreezerClient(conn)
	c.search, c.containers = agentpb.NewSearchClient(conn), agentpb.NewContainersClient(conn)
	return c, nil
}

// streamEnded is told once how the stream ended.
func (c *Client) streamEnded(err error) {
	if err != nil {
		_ = c.end(fmt.Errorf("%w: its stream ended: %w", ErrAgentDead, err))
		return
	}
	if c.leaving.Load() {
		_ = c.end(fmt.Errorf("%w: it was shut down", ErrAgentDead))
		return
	}
	_ = c.end(fmt.Errorf("%w: it ended the session by itself, or sent what is not HTTP/2 as agreed", ErrProtocol))
}

// end records why the session is over; the first reason stays.
func (c *Client) end(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
	return c.err
}

// fail ends the session because of err and returns the session's error, which is the first one.
func (c *Client) fail(err error) error {
	err = c.end(err)
	_ = c.close() // the reason is recorded already
	return err
}

// Done is closed when the session is over; Err says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is nil while the session lives, then one of this package's errors.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Info is what the guest said at the handshake; empty after Attach.
func (c *Client) Info() Info { return c.info }

// Close ends the session and closes the stream; the guest then shuts down. Calls in progress
// return ErrClosed.
func (c *Client) Close() error {
	_ = c.end(ErrClosed) // an earlier reason stays
	err := c.close()
	c.conn.Close()
	return err
}
