package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// line is a server of a playground at the other end of its standard streams.
type line struct {
	*playground
	in   *io.PipeWriter
	out  *bufio.Scanner
	done chan error
}

// onLine serves on transports as Serve does; bare is go-sdk's own one, the twin that holds clients to nothing.
func onLine(t *testing.T, bare bool, stall time.Duration) *line {
	t.Helper()
	s, err := newServer(Options{Home: newHome(t)}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p := &playground{server: s, fake: &fakeRunner{running: map[string]*fakeMachine{}}}
	s.runner = p.fake
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &line{p, inW, bufio.NewScanner(outR), make(chan error, 1)}
	l.out.Buffer(nil, 64<<20)
	go func() {
		var tr sdk.Transport = &transport{inR, outW, stall, time.Millisecond}
		if bare {
			tr = &sdk.IOTransport{Reader: inR, Writer: outW}
		}
		l.done <- s.serve(t.Context(), "test", tr)
		_ = outW.Close()
		_ = inR.Close()
	}()
	t.Cleanup(func() { _, _ = inW.Close(), outR.Close() })
	l.put(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+initParams("2025-06-18")+"}")
	l.answer(t)
	l.put(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return l
}

func (l *line) put(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(l.in, text+"\n"); err != nil {
		t.Error(err)
	}
}

// reply is an answer as it stands on the wire.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (l *line) answer(t *testing.T) (r reply) {
	t.Helper()
	if !l.out.Scan() {
		t.Fatalf("no answer: %v", l.out.Err())
	}
	if err := json.Unmarshal(l.out.Bytes(), &r); err != nil {
		t.Fatalf("%.200q: %v", l.out.Text(), err)
	}
	return r
}

func ping(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }

func execCall(id int, command string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"sandbox_exec","arguments":{"command":%q}}}`, id, command)
}

// hostileLines are messages that can't be used: the id that an answer has, its code, and the message.
func hostileLines() [][3]string {
	long := strings.Repeat("a", maxLine)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	return [][3]string{
		{"null", "-32700", "{"},
		{"null", "-32700", "\x00\xff"},
		{"null", "-32700", "}{"},
		{"null", "-32700", ping("1") + ping("2")},
		{"null", "-32700", `{"jsonrpc":"2.0","id":1,"method":"ping"`},
		{"null", "-32700", deep(20_000)},
		{"null", "-32700", strings.Repeat("[", 1_000_000)},
		{"null", "-32600", deep(maxDepth + 1)},
		{"7", "-32600", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":` + deep(maxDepth) + `}}`},
		{"7", "-32600", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"x":[` + strings.Repeat("[],", maxValues) + `1]}}}`},
		{"null", "-32600", "1"},
		{"null", "-32600", `"text"`},
		{"null", "-32600", "null"},
		{"null", "-32600", "{}"},
		{"null", "-32600", "[]"},
		{"null", "-32600", "[" + strings.Repeat("1,", maxInflight) + "1]"},
		{"null", "-32600", "[1]"},
		{"7", "-32600", `{"id":7,"method":"ping"}`},
		{"7", "-32600", `{"jsonrpc":"1.0","id":7,"method":"ping"}`},
		{"7", "-32600", `{"jsonrpc":2,"id":7,"method":"ping"}`},
		{"7", "-32600", `{"jsonrpc":"2.0","id":7,"method":7}`},
		{"7", "-32600", `{"jsonrpc":"2.0","id":7,"method":{}}`},
		{"null", "-32600", ping("{}")},
		{"null", "-32600", ping("[1]")},
		{"null", "-32600", ping("true")},
		{"1.5", "-32600", ping("1.5")},
		{"1e300", "-32600", ping("1e300")},
		{"9007199254740993", "-32600", ping("9007199254740993")},
		{"null", "-32600", ping(`"` + strings.Repeat("i", 1<<20) + `"`)},
		{"null", "-32600", ping("\"a\xff\"")},
		{"null", "-32600", ping(`"\ud800"`)},
		{"null", "-32600", `{"jsonrpc":"2.0","id":1,"method":"ping","id":2}`},
		{"7", "-32601", `{"jsonrpc":"2.0","id":7,"method":"no/such"}`},
		{"7", "-32601", `{"jsonrpc":"2.0","id":7,"method":""}`},
		{"7", "-32601", `{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("m", 1<<20) + `"}`},
		{"7", "-32602", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + strings.Repeat("<", 1<<20) + `"}}`},
		{"7", "", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[1]}`},
		{"7", "", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":7}}`},
		{"7", "", `{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"` + strings.Repeat("<", 1<<20) + `"}}`},
		{"7", "-32600", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"` + long + `"}}`},
		{`"a-1"`, "-32600", `{"method":"ping","params":{"x":"` + long + `"},"jsonrpc":"2.0","id":"a-1"}`},
		{"null", "-32600", `{"method":"ping","params":{"x":"` + long + `","id":7}}`},
		{"null", "-32600", long},
	}
}

// TestI12_BadMessagesAreAnswered, and what comes behind them is read. The twin is go-sdk's own transport, which ends.
func TestI12_BadMessagesAreAnswered(t *testing.T) {
	t.Parallel()
	l := onLine(t, false, time.Hour)
	for i, c := range hostileLines() {
		go l.put(t, c[2])
		r := l.answer(t)
		if r.Error == nil || string(r.ID) != c[0] || c[1] != "" && fmt.Sprint(r.Error.Code) != c[1] || len(l.out.Bytes()) > 4*maxFault {
			t.Errorf("%.80q: %.300s; want id %s, error %s", c[2], l.out.Text(), c[0], c[1])
		}
		go l.put(t, ping(fmt.Sprint(1000+i)))
		if r := l.answer(t); string(r.ID) != fmt.Sprint(1000+i) || r.Error != nil {
			t.Fatalf("behind %.80q: %.300s", c[2], l.out.Text())
		}
	}
	// Nothing is answered here.
	for _, text := range []string{
		"", " \t\r", `{"jsonrpc":"2.0","method":"ping"}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","method":"no/such","params":7}`,
		`{"jsonrpc":"2.0","id":5,"result":{}}`, `{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":7}`,
	} {
		go l.put(t, text+"\n"+ping(`"next"`))
		if r := l.answer(t); string(r.ID) != `"next"` {
			t.Fatalf("behind %q: %s", text, l.out.Text())
		}
	}
	go l.put(t, `{"ID":1,"Id":{},"jsonrpc":"2.0","id":"\ud83d\ude00","method":"ping"}`) // keys of other case are others
	if r := l.answer(t); string(r.ID) != `"😀"` || r.Error != nil {
		t.Errorf("an id beside others: %s", l.out.Text())
	}
	// A batch is so many messages.
	go l.put(t, "["+ping("1")+","+ping(`"b"`)+`,{"jsonrpc":"2.0","method":"x"}]`)
	if a, b := string(l.answer(t).ID), string(l.answer(t).ID); a+b != `1"b"` && a+b != `"b"1` {
		t.Errorf("a batch is answered for %s and %s", a, b)
	}
	twin := onLine(t, true, 0)
	go func() { _, _ = io.WriteString(twin.in, ping("1")+ping("2")+"\n") }()
	if err := <-twin.done; err == nil {
		t.Error("go-sdk's transport goes on by itself: is this one needed?")
	}
}

// TestI11_EndlessLinesEndTheServer, which holds one message of the greatest length meanwhile. It is alone, to see that.
func TestI11_EndlessLinesEndTheServer(t *testing.T) {
	l := onLine(t, false, time.Hour)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chunk := []byte(strings.Repeat("x", 1<<20))
	sent := 0
	for sent < 1<<30 {
		n, err := l.in.Write(chunk)
		if sent += n; err != nil {
			break
		}
	}
	if err := <-l.done; !errors.Is(err, errEndless) {
		t.Errorf("ended with %v", err)
	}
	runtime.ReadMemStats(&after)
	if all := after.TotalAlloc - before.TotalAlloc; sent > maxSkipped+2<<20 || all > 8*maxLine {
		t.Errorf("%d bytes were read, and %d allocated in all", sent, all)
	}
}

// TestI11_CallsInFlightAreBounded sends 10,000 at once. What runs, and what waits, is bounded; each is answered. The twin
// is go-sdk's own transport, which takes all that come.
func TestI11_CallsInFlightAreBounded(t *testing.T) {
	for _, bare := range []bool{false, true} {
		l := onLine(t, bare, time.Hour)
		var now, most atomic.Int64
		full, gate := make(chan struct{}), make(chan struct{})
		want := int64(maxInflight)
		if bare {
			want *= 2
		}
		l.fake.exec = func(context.Context, sandbox.ExecOptions) (sandbox.ExitStatus, error) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if n == want {
				close(full)
			}
			<-gate
			now.Add(-1)
			return sandbox.ExitStatus{}, nil
		}
		before := runtime.NumGoroutine()
		calls := 10_000
		if bare {
			calls = int(want)
		}
		go func() {
			for i := range calls {
				_, _ = io.WriteString(l.in, execCall(i, "x")+"\n")
			}
		}()
		done, busy := 0, 0
		for !bare && busy < calls-maxInflight {
			if r := l.answer(t); r.Error == nil || r.Error.Code != codeBusy {
				t.Fatalf("%.200s", l.out.Text())
			}
			busy++
		}
		<-full
		if more := runtime.NumGoroutine() - before; !bare && more > 8*maxInflight {
			t.Errorf("%d goroutines for %d calls", more, maxInflight)
		}
		close(gate)
		for ; done < int(want); done++ {
			if r := l.answer(t); r.Error != nil {
				t.Fatalf("%.200s", l.out.Text())
			}
		}
		if most.Load() != want {
			t.Errorf("bare %v: %d calls ran at once, want %d", bare, most.Load(), want)
		}
		if !bare { // there is room again
			go l.put(t, execCall(1, "x"))
			if r := l.answer(t); r.Error != nil {
				t.Errorf("a call behind the flood: %.200s", l.out.Text())
			}
		}
		_ = l.in.Close()
		<-l.done
	}
}

// TestI11_BytesInFlightAreBounded: few calls may be long, and an answer makes room when it is written.
func TestI11_BytesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	_, w := io.Pipe()
	made, err := (&transport{io.NopCloser(strings.NewReader("")), w, time.Hour, time.Hour}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*conn)
	id := func(i int) jsonrpc.ID {
		id, err := jsonrpc.MakeID(float64(i))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const fit = maxInflightBytes / maxLine
	for i := range fit {
		if why := c.admit(id(i), maxLine); why != "" {
			t.Errorf("call %d: %s", i, why)
		}
	}
	if c.admit(id(fit), 1) == "" {
		t.Errorf("a byte more than %d", maxInflightBytes)
	}
	written, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Write(written, &jsonrpc.Response{ID: id(0), Result: json.RawMessage("{}")}) // nobody reads it
	if why := c.admit(id(0), maxLine); why != "" {
		t.Errorf("behind an answer: %s", why)
	}
	c.end()
}

// TestCancelledCallsEndInTheGuest, each by its id, of whatever type that is, and an id in use is refused.
func TestCancelledCallsEndInTheGuest(t *testing.T) {
	t.Parallel()
	l := onLine(t, false, time.Hour)
	running, ended := make(chan struct{}), make(chan struct{})
	l.fake.exec = func(ctx context.Context, _ sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		running <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return sandbox.ExitStatus{}, ctx.Err()
	}
	for _, id := range []string{"5", `"five"`, "-1", "0"} {
		call := strings.Replace(execCall(5, "x"), `"id":5`, `"id":`+id, 1)
		l.put(t, call)
		<-running
		go l.put(t, call)
		if r := l.answer(t); r.Error == nil || r.Error.Code != codeBusy || string(r.ID) != id {
			t.Errorf("a second call with id %s: %s", id, l.out.Text())
		}
		for _, other := range []string{`"requestId":7777,"REQUESTID":` + id, `"REQUESTID":` + id, `"requestId":` + id + `,"requestId":7777`, `"requestId":7777,"requestId":` + id} {
			l.put(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{`+other+`}}`)
		}
		for range 1000 { // what is said twice is dropped
			l.put(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
		}
		<-ended
		if r := l.answer(t); string(r.ID) != id {
			t.Errorf("the cancelled call %s: %s", id, l.out.Text())
		}
	}
}

// TestI11_StalledClientsHoldUpNothing: their calls are done, more are not begun, and the server ends with its input
// or its context, and by itself where errors are all that it could say.
func TestI11_StalledClientsHoldUpNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"input", "flood"} {
		l := onLine(t, false, time.Millisecond)
		ran := make(chan struct{}, 2*maxInflight)
		l.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
			_, err := io.WriteString(o.Stdout, strings.Repeat("x", outputBudget))
			ran <- struct{}{}
			return sandbox.ExitStatus{}, err
		}
		for i := range maxInflight {
			l.put(t, execCall(i, "x"))
		}
		for range maxInflight {
			<-ran
		}
		if how == "flood" {
			go func() {
				for { // until the server ends
					if _, err := io.WriteString(l.in, execCall(maxInflight+1, "x")+"\n"); err != nil {
						return
					}
				}
			}()
			c := <-l.done
			if !errors.Is(c, errStalled) {
				t.Errorf("a flood without a reader ends with %v", c)
			}
			continue
		}
		_, _ = io.WriteString(l.in, `{"jsonrpc":"2.0","id":1,"meth`) // and the input ends within a message
		_ = l.in.Close()
		if err := <-l.done; err != nil {
			t.Errorf("end of input: %v", err)
		}
		if len(ran) > 0 {
			t.Error("a call was done for a client that does not read")
		}
	}
}
