package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// flooded is a connection to a client that sends what is refused, and reads nothing.
func flooded(t *testing.T, stall time.Duration) *conn {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	made, err := (&transport{inR, outW, stall, flushWait}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for { // until the server ends
			if _, err := io.WriteString(inW, "{\n"); err != nil {
				return
			}
		}
	}()
	c := made.(*conn)
	t.Cleanup(func() { _ = outR.Close(); _ = c.Close() })
	return c
}

// TestI11_SlowReadersAreDisconnected behind 10 seconds. The twin has no such bound, and is there a day later.
func TestI11_SlowReadersAreDisconnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, twin := flooded(t, stallWait), flooded(t, 1000*time.Hour)
		ended := func(c *conn) bool {
			select {
			case <-c.eof:
				return true
			default:
				return false
			}
		}
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		if ended(ours) {
			t.Errorf("ended before 10 seconds: %v", ours.readErr)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !ended(ours) || !errors.Is(ours.readErr, errStalled) {
			t.Error("a client that sends and doesn't read is there behind 10 seconds")
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if ended(twin) || len(twin.out) != maxWaiting {
			t.Errorf("the twin: ended %v, %d answers wait", ended(twin), len(twin.out))
		}
	})
}

// TestClosedClientsEndTheServer: one that closes the server's standard output, and goes on sending, is the end of its
// input.
func TestClosedClientsEndTheServer(t *testing.T) {
	t.Parallel()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	made, err := (&transport{inR, outW, time.Hour, time.Millisecond}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = outR.Close()
	if _, err := io.WriteString(inW, "{\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Read(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("read %v", err)
	}
	_ = made.Close()
}

// TestLogsBlockWithoutTheirBuffer is the twin of TestLogsNeverHoldCallsUp: a line that nobody reads stops its writer.
func TestLogsBlockWithoutTheirBuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written := func(buffered bool) int {
			r, w := io.Pipe()
			n := make(chan int, 2*maxLogLines)
			out := io.Writer(w)
			if buffered {
				l := make(logWriter, maxLogLines)
				out = l
			}
			go func() {
				log := slog.New(slog.NewTextHandler(out, nil))
				for range cap(n) {
					log.Info("a line")
					n <- 1
				}
			}()
			synctest.Wait()
			defer func() { _ = r.Close(); synctest.Wait() }()
			return len(n)
		}
		if ours, twin := written(true), written(false); ours != 2*maxLogLines || twin != 0 {
			t.Errorf("%d lines were logged that nobody reads, and %d without the buffer", ours, twin)
		}
	})
}

// TestDuplicateIDsAreAnswered with an error of that id. The twin is go-sdk alone, which doesn't answer the second call.
func TestDuplicateIDsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		l := onLine(t, bare, time.Hour)
		begun, gate := make(chan struct{}, 2), make(chan struct{})
		l.fake.exec = func(context.Context, sandbox.ExecOptions) (sandbox.ExitStatus, error) {
			begun <- struct{}{}
			<-gate
			return sandbox.ExitStatus{}, nil
		}
		l.put(t, execCall(5, "x"))
		<-begun
		go l.put(t, execCall(5, "y")+"\n"+ping("6"))
		faults := 0
		r := l.answer(t)
		for ; string(r.ID) != "6"; r = l.answer(t) {
			if string(r.ID) == "5" && r.Error != nil && r.Error.Code == codeBusy {
				faults++
			}
		}
		close(gate)
		if r := l.answer(t); string(r.ID) != "5" || r.Error != nil || len(begun) > 0 {
			t.Errorf("bare %v: the first call: %s, %d further began", bare, l.out.Text(), len(begun))
		}
		if (faults == 1) == bare {
			t.Errorf("bare %v: the second call has %d answers", bare, faults)
		}
	}
}
