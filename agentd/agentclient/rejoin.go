package agentclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// RejoinConn is the stream of a guest whose machine was saved.
type RejoinConn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// maxStaleBytes bounds what a guest sends of the session before: what its kernel and the VMM hold of the port.
const maxStaleBytes = 16 << 20

// Rejoin ends the session that a machine was saved in, for the guest: key is that session's Options.ResumeKey. The stream
// that it returns is for Dial with Options.Resumed. What the guest had still to send of the session is thrown away.
func Rejoin(ctx context.Context, conn RejoinConn, key []byte) (RejoinConn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	rest, err := rejoin(conn, key)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w: the machine that was saved: %w", ErrTimeout, ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("the machine that was saved: %w", err)
	}
	return &rejoined{RejoinConn: conn, rest: rest}, nil
}

// rejoin returns what comes behind the key.
func rejoin(conn io.ReadWriter, key []byte) (rest []byte, err error) {
	if len(key) != agentpb.ResumeKeyBytes {
		return nil, fmt.Errorf("%w: a key of %d bytes", ErrProtocol, len(key))
	}
	if _, err := conn.Write(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAgentDead, err)
	}
	const chunk = 32 << 10
	buf, kept := make([]byte, chunk+agentpb.ResumeKeyBytes), 0 // kept may begin the key
	for stale := 0; stale < maxStaleBytes; {
		n, err := conn.Read(buf[kept : kept+chunk])
		have := buf[:kept+n]
		if at := bytes.Index(have, key); at >= 0 {
			return bytes.Clone(have[at+len(key):]), nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%w: its stream ended: %w", ErrAgentDead, err)
		}
		stale += n
		kept = copy(buf, have[max(0, len(have)-len(key)+1):])
	}
	return nil, fmt.Errorf("%w: it sends without end, and not what it was asked for", ErrProtocol)
}

// rejoined begins with what was read behind the key.
type rejoined struct {
	RejoinConn
	rest []byte
}

// Read implements io.Reader.
func (r *rejoined) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.RejoinConn.Read(p)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
