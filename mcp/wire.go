package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The bounds on what a client makes this process hold. go-sdk's own transport has the first alone, and ends at any
// message that it can't read.
const (
	// maxLine bounds one message, in bytes. What is longer is skipped and answered with an error.
	maxLine = 8 << 20
	// maxSkipped ends the connection: a line that has no end is no message.
	maxSkipped = 8 * maxLine
	// maxInflight and maxInflightBytes bound the calls that are not answered yet; one more is answered with an error.
	maxInflight      = 64
	maxInflightBytes = 4 * maxLine
	// maxDepth and maxValues bound what a message decodes to: an empty value is 2 bytes of text and up to 100 of memory.
	maxDepth  = 64
	maxValues = 1 << 17
	// maxID bounds an id and a progress token, maxFault what an error of go-sdk says, in bytes: it repeats what it doesn't know.
	maxID    = 256
	maxFault = 1000
	// maxWaiting bounds the errors of this file that wait for a client to read them.
	maxWaiting = 256
	// stallWait is how long a client may send without reading.
	stallWait = 10 * time.Second
	// flushWait is how long a client that sends no more may take to read the last answers.
	flushWait = time.Second
	// maxAsked bounds this server's own calls that a client doesn't answer.
	maxAsked = 64
	// maxInitialized bounds the notifications of that name; clients send two at most.
	maxInitialized = 16
)

// methods are the calls that this server answers. go-sdk has more, and answers some in ways that end the connection.
var methods = []string{"initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen"}

// codeBusy is of JSON-RPC's range for a server's own errors.
const codeBusy = -32000

var (
	errEndless = fmt.Errorf("a message of more than %d bytes", maxSkipped)
	errStalled = errors.New("the client sends and does not read")
)

// transport carries messages as lines, and holds the client to the bounds above. What can't be read is answered with an
// error, and the next line is read. A batch, which one revision of the protocol has, counts as so many messages; each is
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
	go c.read() // both end with the connection, or with the process where a stream of it blocks for ever
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

// inflight is a call that is not answered.
type inflight struct {
	bytes     int
	cancelled bool
}

// outgoing is a line for the client. done, if there is one, gets what came of it.
type outgoing struct {
	line []byte
	done chan error
}

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

// answerRest waits for the answers of calls that were read before the end: go-sdk cancels them once it learns of the end.
// It waits no longer than flushWait, so that a client's end is that of its calls.
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
	_ = c.send(context.Background(), nil) // behind the others
	c.end()
	return errors.Join(c.r.Close(), c.w.Close())
}

// stop reads no more, and writes no more a little later.
func (c *conn) stop(err error) {
	c.stopOnce.Do(func() {
		c.readErr = err
		close(c.eof)
		time.AfterFunc(c.flushWait, c.end)
	})
}

func (c *conn) end() { c.endOnce.Do(func() { close(c.ended) }) }

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

// awaited reports whether a response is one to a call of this server's, for once.
func (c *conn) awaited(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.asked[id]
	delete(c.asked, id)
	return was
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

// read accepts lines until there are no more.
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

// line is the next one. One that is too long is answered, and the one behind it is the next.
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
		case !errors.Is(err, bufio.ErrBufferFull): // of a line without an end nothing is taken
			return nil, err
		}
	}
}

// idAtFront and idAtEnd find the id of a message that is not read: clients write it first or last.
var (
	idAtFront = regexp.MustCompile(`^\s*\{(?:"jsonrpc":\s*"2\.0",\s*)?"id":\s*(-?\d{1,16}|"[\w-]{1,64}")\s*,`)
	idAtEnd   = regexp.MustCompile(`,\s*"id":\s*(-?\d{1,16}|"[\w-]{1,64}")\s*\}\s*$`)
)

// skip reads to the end of a line whose beginning is given, and answers it.
func (c *conn) skip(front []byte, whole bool) error {
	tail := bytes.Clone(front[len(front)-maxID:])
	front = bytes.Clone(front[:maxID]) // the rest may go
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
	id := idAtFront.FindSubmatch(front)
	if id == nil {
		id = idAtEnd.FindSubmatch(tail[max(0, len(tail)-maxID):])
	}
	if id == nil {
		id = [][]byte{nil, nil}
	}
	return c.refuse(id[1], jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message of more than %d bytes; write long files in parts", maxLine))
}

// refuse answers a message that isn't handled. id is its JSON.
func (c *conn) refuse(id json.RawMessage, code int64, why string) error {
	if len(id) == 0 || len(id) > maxID || bytes.ContainsAny(id[:1], "{[tf") || id[0] == '"' && !usable(id) {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, jsonrpc.Error{Code: code, Message: why}})
	if err != nil {
		return err
	}
	o := outgoing{line: append(line, '\n')}
	select {
	case c.out <- o:
		return nil
	default:
	}
	stalled := time.NewTimer(c.stallWait)
	defer stalled.Stop()
	select {
	case c.out <- o:
		return nil
	case <-c.ended:
		return io.EOF
	case <-stalled.C:
		return errStalled
	}
}

// accept passes on what a line holds.
func (c *conn) accept(line []byte) error {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil
	}
	if !json.Valid(line) {
		return c.refuse(nil, jsonrpc.CodeParseError, "no JSON")
	}
	if !plain(line) {
		id, _ := idOf(line)
		return c.refuse(id, jsonrpc.CodeInvalidRequest, fmt.Sprintf("more than %d values, or more than %d levels", maxValues, maxDepth))
	}
	if line[0] != '[' {
		return c.acceptOne(line)
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(line, &batch); err != nil || len(batch) == 0 || len(batch) > maxInflight {
		return c.refuse(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a batch has 1 to %d messages", maxInflight))
	}
	for _, one := range batch {
		if err := c.acceptOne(one); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) acceptOne(raw json.RawMessage) error {
	id, once := idOf(raw)
	if !once {
		return c.refuse(nil, jsonrpc.CodeInvalidRequest, "id: write it once")
	}
	if id != nil && !usable(id) {
		return c.refuse(id, jsonrpc.CodeInvalidRequest, "id: write a string of valid UTF-8, or an integer")
	}
	m, err := jsonrpc.DecodeMessage(raw)
	if err != nil {
		return c.refuse(id, jsonrpc.CodeInvalidRequest, "no message of JSON-RPC 2.0: "+printed(err.Error()))
	}
	if answer, ok := m.(*jsonrpc.Response); ok {
		if !c.awaited(answer.ID) {
			return nil
		}
		return c.pass(answer)
	}
	r, ok := m.(*jsonrpc.Request)
	if !ok {
		return nil
	}
	switch {
	case !r.IsCall():
		if !c.wanted(r) {
			return nil
		}
	case !slices.Contains(methods, r.Method):
		return c.refuse(id, jsonrpc.CodeMethodNotFound, fmt.Sprintf("no such method: %q", printed(r.Method)))
	default:
		if why := c.admit(r.ID, len(raw)); why != "" {
			return c.refuse(id, codeBusy, why)
		}
	}
	return c.pass(r)
}

// pass gives a message to go-sdk.
func (c *conn) pass(m jsonrpc.Message) error {
	select {
	case c.incoming <- m:
		return nil
	case <-c.eof:
		return io.EOF
	}
}

// admit takes a call in, or says why not.
func (c *conn) admit(id jsonrpc.ID, size int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open[id] != nil:
		return "a call with this id is under way"
	case c.calls >= maxInflight || c.held+size > maxInflightBytes:
		return fmt.Sprintf("busy: at most %d calls of %d bytes together at once; call again when one is answered", maxInflight, maxInflightBytes)
	}
	c.open[id] = &inflight{bytes: size}
	c.calls, c.held = c.calls+1, c.held+size
	return ""
}

// wanted reports whether a notification is passed on. go-sdk keeps those that it has not handled without a bound: of each
// call one is taken, and all that mean nothing here are dropped.
func (c *conn) wanted(r *jsonrpc.Request) bool {
	switch r.Method {
	case "notifications/initialized":
		c.initialized++
		return c.initialized <= maxInitialized && len(r.Params) <= maxID
	case "notifications/cancelled":
		if len(r.Params) > 1<<16 {
			return false
		}
		raw, _ := member(r.Params, "requestId") // nil if it is there twice
		var value any
		if raw == nil || !usable(raw) || json.Unmarshal(raw, &value) != nil {
			return false
		}
		id, err := jsonrpc.MakeID(value)
		if err != nil {
			return false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		one := c.open[id]
		if one == nil || one.cancelled {
			return false
		}
		one.cancelled = true
		return true
	}
	return false
}
