package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// The bounds on what a client makes this process hold. go-sdk's own transport has only the first, and ends at any message
// that it can't read.
const (
	// maxLine bounds one message, in bytes. What is longer is skipped and answered with an error.
	maxLine = 8 << 20
	// maxSkipped is the length of a line, in bytes, that ends the connection.
	maxSkipped = 8 * maxLine
	// maxInflight and maxInflightBytes bound the calls that are not answered yet; one more is answered with an error.
	maxInflight      = 64
	maxInflightBytes = 4 * maxLine
	// maxDepth and maxValues bound the values of a message: an empty one is 2 bytes of text and up to 100 of memory.
	maxDepth  = 64
	maxValues = 1 << 17
	// maxID bounds an id and a progress token, maxFault the text of an error of go-sdk's, which may repeat parts of a
	// message; in bytes.
	maxID    = 256
	maxFault = 1000
	// maxWaiting bounds the errors of this file that wait for a client to read them.
	maxWaiting = 256
	// stallWait is how long a client may send without reading.
	stallWait = 10 * time.Second
	// flushWait is how long a client may take to read the last answers after its input has ended.
	flushWait = time.Second
	// maxAsked bounds this server's own calls that the client has not answered.
	maxAsked = 64
	// maxInitialized bounds the notifications of that name; clients send two at most.
	maxInitialized = 16
)

var (
	errEndless = fmt.Errorf("a message of more than %d bytes", maxSkipped)
	errStalled = errors.New("the client sends and does not read")
)

// transport carries messages as lines, and enforces the bounds above. A line that can't be read is answered with an error,
// and the next line is read. A batch, which one revision of the protocol has, counts as that many messages; each is
// answered by itself.
type transport struct {
	r                    io.ReadCloser
	w                    io.WriteCloser
	stallWait, flushWait time.Duration
}

var _ sdk.Transport = (*transport)(nil)

// Connect implements sdk.Transport. With the end of ctx the connection ends as if the client had ended it.
func (t *transport) Connect(ctx context.Context) (sdk.Connection, error) {
	c := &conn{
		transport: t, in: bufio.NewReaderSize(t.r, 64<<10), incoming: make(chan jsonrpc.Message), out: make(chan outgoing, maxWaiting),
		eof: make(chan struct{}), ended: make(chan struct{}), written: make(chan struct{}, 1), open: map[jsonrpc.ID]*inflight{}, asked: map[jsonrpc.ID]bool{},
	}
	c.release = context.AfterFunc(ctx, func() { c.stop(io.EOF) })
	go c.read() // both end with the connection, or with the process if a stream blocks for ever
	go c.write()
	return c, nil
}

// conn is the connection of a transport.
type conn struct {
	*transport
	in       *bufio.Reader
	incoming chan jsonrpc.Message
	out      chan outgoing
	release  func() bool

	stopOnce, endOnce sync.Once
	eof, ended        chan struct{} // no more is read; no more is written
	readErr           error         // once eof is closed
	written           chan struct{} // a call was answered
	initialized       int           // of the goroutine that reads

	mu          sync.Mutex
	open        map[jsonrpc.ID]*inflight
	calls, held int                 // calls that are not answered, and their bytes
	asked       map[jsonrpc.ID]bool // this server's own calls that the client has not answered
}

var _ sdk.Connection = (*conn)(nil)

// SessionID implements sdk.Connection.
func (c *conn) SessionID() string { return "" }

// Read implements sdk.Connection.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.incoming:
		return m, nil
	case <-c.eof:
		c.answerRest(ctx)
		return nil, c.readErr
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerRest waits for the answers to calls that were read before the end of input, since go-sdk cancels them once it
// learns of the end. It waits at most flushWait, so that a client's end also ends its calls.
func (c *conn) answerRest(ctx context.Context) {
	for {
		c.mu.Lock()
		n := c.calls
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.written:
		case <-c.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Close implements sdk.Connection. Answers that wait are written as long as the client reads.
func (c *conn) Close() error {
	c.release()
	c.stop(io.EOF)
	_ = c.send(context.Background(), nil) // after all other lines
	c.end()
	return errors.Join(c.r.Close(), c.w.Close())
}

// stop ends the reading at once, and the writing after flushWait.
func (c *conn) stop(err error) {
	c.stopOnce.Do(func() {
		c.readErr = err
		close(c.eof)
		time.AfterFunc(c.flushWait, c.end)
	})
}

func (c *conn) end() { c.endOnce.Do(func() { close(c.ended) }) }

// read accepts lines until the end of input.
func (c *conn) read() {
	for {
		line, err := c.line()
		if err == nil {
			err = c.accept(line)
		}
		if err != nil {
			c.stop(err)
			return
		}
	}
}

// line reads the next line. It answers a line that is too long with an error, and reads the one after it.
func (c *conn) line() ([]byte, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			if err := c.skip(line, err == nil); err != nil {
				return nil, err
			}
			line = nil
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull): // a line without an end is dropped
			return nil, err
		}
	}
}

// idAtFront and idAtEnd find the id of a message that is too long to be parsed: clients write it first or last.
var (
	idAtFront = lazyregexp.New(`^\s*\{(?:"jsonrpc":\s*"2\.0",\s*)?"id":\s*(-?\d{1,16}|"[\w-]{1,64}")\s*,`)
	idAtEnd   = lazyregexp.New(`,\s*"id":\s*(-?\d{1,16}|"[\w-]{1,64}")\s*\}\s*$`)
)

// skip reads to the end of a line whose beginning is given, and answers it.
func (c *conn) skip(front []byte, whole bool) error {
	tail := bytes.Clone(front[len(front)-maxID:])
	front = bytes.Clone(front[:maxID]) // the rest can be freed
	for n := maxLine; !whole; {
		part, err := c.in.ReadSlice('\n')
		tail = append(tail[:copy(tail, tail[max(0, len(tail)-maxID):])], part...)
		if n += len(part); n > maxSkipped {
			return errEndless
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		whole = err == nil
	}
	id := idAtFront.Get().FindSubmatch(front)
	if id == nil {
		id = idAtEnd.Get().FindSubmatch(tail[max(0, len(tail)-maxID):])
	}
	if id == nil {
		id = [][]byte{nil, nil}
	}
	return c.refuse(id[1], jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message of more than %d bytes; write long files in parts", maxLine))
}
