package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// heap is what is in use behind a collection, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools keep what they have over one
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestI11_RememberedCallsHoldNoArguments: a call's arguments may have 8 MiB, of which the history shows 200 bytes. It is
// alone, to see the memory.
func TestI11_RememberedCallsHoldNoArguments(t *testing.T) {
	const long, calls = 1 << 20, 5
	pad := strings.Repeat(" ", long)
	for _, args := range []string{
		`{"command":"x` + pad + `"}`, `{"command":"` + pad + `"}`, `{"argv":["x","` + pad + `"]}`, `{"path":"/` + strings.Repeat("a", long) + `"}`,
		`{"sandbox":"web","files":[{"path":"/x","content":"` + pad + `"}]}`, `{"packages":["` + strings.Repeat("é", long/2) + `"]}`,
	} {
		var h history
		before := heap()
		for range calls {
			h.add(recall(time.Now(), "sandbox_exec", []byte(args)), false)
		}
		if held := heap() - before; held > long {
			t.Errorf("%.30s…: %d calls hold %d bytes", args, calls, held)
		}
		runtime.KeepAlive(&h)
	}
}

// TestI11_RunningCallsHoldNoArguments, and those that ended hold no long error.
func TestI11_RunningCallsHoldNoArguments(t *testing.T) {
	p := serve(t, nil)
	p.calls.patience = 0
	gate, begun := make(chan struct{}), make(chan int)
	long := append(bytes.Repeat([]byte(" "), 1<<20), "{}"...)
	held := weak.Make(&long[0])
	call := p.handler(toolSpec{name: "x", call: func(_ context.Context, raw json.RawMessage) (string, error) {
		begun <- len(raw)
		<-gate
		return "", errors.New(strings.Repeat("x", 8<<20))
	}})
	req := &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Arguments: long}}
	r, err := call(t.Context(), req)
	if err != nil || r.IsError {
		t.Fatalf("%+v, %v", r, err)
	}
	if n := <-begun; n != len(long) {
		t.Errorf("the call has %d bytes of arguments", n)
	}
	if heap(); held.Value() != nil {
		t.Error("a call that goes on holds its arguments")
	}
	runtime.KeepAlive(req) // as go-sdk may
	before := heap()
	close(gate)
	p.calls.running.Wait()
	if more := heap() - before; more > 1<<20 {
		t.Errorf("the error of a call that ended holds %d bytes", more)
	}
	if _, err := p.calls.wait(t.Context(), "call-1"); err == nil || len(err.Error()) > 2*maxSentence {
		t.Errorf("%.100v", err)
	}
}
