package secretproxy

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestI11_UpstreamRequestsWaitForSlots(t *testing.T) {
	t.Parallel()
	const over = 60
	var now, most, served atomic.Int64
	release := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		served.Add(1)
		<-release
		now.Add(-1)
		_, _ = io.WriteString(rw, "done")
	})
	var requests sync.WaitGroup
	var answered atomic.Int64
	ask := func(ctx context.Context, c *http.Client) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+apiHost+"/", nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := c.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) == "done" {
			answered.Add(1)
		}
	}
	client := func() *http.Client {
		c := w.client(apiHost, apiAddr, true)
		c.Timeout = 0
		return c
	}
	var c *http.Client
	for i := range maxInFlight {
		if i%maxStreams == 0 {
			c = client()
		}
		on := c
		requests.Go(func() { ask(t.Context(), on) })
		// One handshake at a time: all at once, the last of them would come too late on a busy machine.
		eventually(t, "a request doesn't reach the server", func() bool { return served.Load() == int64(i+1) })
	}
	// These find no slot; some are given up while they wait.
	c = client()
	given, giveUp := context.WithCancel(t.Context())
	for i := range over {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = given
		}
		requests.Go(func() { ask(ctx, c) })
	}
	for w.proxy.Stats().Requests < maxInFlight+over {
		runtime.Gosched()
	}
	giveUp()
	close(release)
	requests.Wait()
	if most.Load() > maxInFlight {
		t.Errorf("%d requests at once reached the server, the bound is %d", most.Load(), maxInFlight)
	}
	if got := answered.Load(); got < maxInFlight+over/2 {
		t.Errorf("%d requests were answered, want at least %d", got, maxInFlight+over/2)
	}
	up, err := w.proxy.upstreams.get(upstreamKey{name: flow(apiHost, apiAddr).Name, dst: apiAddr, tls: true})
	if err != nil {
		t.Fatal(err)
	}
	for len(up.slots) > 0 { // a slot that is never given back is this test's timeout
		runtime.Gosched()
	}
}
