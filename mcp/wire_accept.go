package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// methods are the calls that this server answers. go-sdk has more, and answers some in ways that end the connection.
var methods = []string{"initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen"}

// codeBusy is in JSON-RPC's range for a server's own errors.
const codeBusy = -32000

// inflight is a call that is not answered.
type inflight struct {
	bytes     int
	cancelled bool
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

// accept passes on the messages of a line.
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

// admit counts a call as in progress, or says why it is refused.
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

// awaited reports whether a response answers a call of this server's, and forgets that call.
func (c *conn) awaited(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.asked[id]
	delete(c.asked, id)
	return was
}

// wanted reports whether a notification is passed on. go-sdk queues notifications without a bound, so only one cancellation
// of each call passes, and notifications that have no effect here are dropped.
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
