package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// outgoing is a line for the client. done, if there is one, gets what came of it.
type outgoing struct {
	line []byte
	done chan error
}

// Write implements sdk.Connection. A call is in flight until its answer is written: a client that doesn't read gets no
// further calls done.
func (c *conn) Write(ctx context.Context, m jsonrpc.Message) error {
	size := -1
	switch r := m.(type) {
	case *jsonrpc.Response:
		size = c.answered(r.ID) // with its answer the client may use the id again
		m = short(r)
	case *jsonrpc.Request:
		if err := c.asks(r); err != nil {
			return err
		}
	}
	line, err := jsonrpc.EncodeMessage(m)
	if err == nil {
		err = c.send(ctx, append(line, '\n'))
	}
	if size >= 0 {
		c.mu.Lock()
		c.calls, c.held = c.calls-1, c.held-size
		c.mu.Unlock()
		select {
		case c.written <- struct{}{}:
		default: // one is there already
		}
	}
	return err
}

// asks notes a call to the client, whose answer is then passed on, and the end of one.
func (c *conn) asks(r *jsonrpc.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.IsCall() && len(c.asked) >= maxAsked:
		return fmt.Errorf("the client has not answered %d calls", len(c.asked))
	case r.IsCall():
		c.asked[r.ID] = true
	case r.Method == "notifications/cancelled":
		var id any
		if raw, _ := member(r.Params, "requestId"); raw != nil && json.Unmarshal(raw, &id) == nil {
			if id, err := jsonrpc.MakeID(id); err == nil {
				delete(c.asked, id)
			}
		}
	}
	return nil
}

// short is a response as it is, or an error of go-sdk's without what it repeats of a long message.
func short(r *jsonrpc.Response) *jsonrpc.Response {
	var fault *jsonrpc.Error
	if r.Error == nil {
		return r
	}
	known := errors.As(r.Error, &fault)
	if len(r.Error.Error()) <= maxFault && (!known || len(fault.Data) <= maxFault && (fault.Data == nil || json.Valid(fault.Data))) {
		return r
	}
	bare := &jsonrpc.Error{Message: printed(r.Error.Error())}
	if known {
		bare.Code = fault.Code
	}
	return &jsonrpc.Response{ID: r.ID, Error: bare}
}

// answered takes a call out of those whose ids are in use, and returns its bytes, or -1.
func (c *conn) answered(id jsonrpc.ID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[id]
	if one == nil {
		return -1
	}
	delete(c.open, id)
	return one.bytes
}

// send gives the client a line and waits until it is written.
func (c *conn) send(ctx context.Context, line []byte) error {
	done := make(chan error, 1)
	select {
	case c.out <- outgoing{line, done}:
	case <-c.ended:
		return io.EOF // as the client has it
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-c.ended:
		return io.EOF // as the client has it
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) write() {
	for {
		select {
		case <-c.ended:
			return
		case o := <-c.out:
			var err error
			if len(o.line) > 0 {
				_, err = c.w.Write(o.line)
			}
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) { // a client that is gone
				err = io.EOF
			}
			if err != nil {
				c.stop(err)
			}
			if o.done != nil {
				o.done <- err
			}
		}
	}
}
