package secretproxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/msb-project/msb/secretproxy/sigv4"
)

// stalling gives its head and then n bytes, and nothing more until ctx ends.
type stalling struct {
	ctx     context.Context // a reader has no other way to it
	head    io.Reader
	bytes   *endless
	settled func()
}

// Read implements io.Reader.
func (s *stalling) Read(p []byte) (int, error) {
	if n, _ := s.head.Read(p); n > 0 {
		return n, nil
	}
	if n, err := s.bytes.Read(p); err == nil {
		return n, nil
	}
	s.settled()
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func heapNow() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestI11_TheHeapIsBounded looks from outside, at the process: many requests or answers at once, each of which
// would hold megabytes, stand still. It isn't parallel. make test-memory runs it at the size of the attack on
// the budget that sandboxes have; else the attack and the budget are a quarter of that.
func TestI11_TheHeapIsBounded(t *testing.T) {
	budget, requests, window := int64(memoryLimit/4), 6, 4
	if os.Getenv("MSB_TEST_MEMORY") != "" {
		budget, requests, window = memoryLimit, 64, 20
	}
	// The test's own ends of the connections, and garbage of the moment.
	slack := int64(32<<20) + int64(requests)<<20
	var packed bytes.Buffer
	bw := brotli.NewWriterOptions(&packed, brotli.WriterOptions{Quality: 1, LGWin: 24})
	for range window {
		_, _ = bw.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	}
	_ = bw.Close()
	aws := func(t *testing.T) *world { return awsWorld(t, "s3", realKeyID+":"+realSecretKey, withMemory(budget)) }
	signed := func(head, said string, size int64) func(*testing.T, *world, context.Context, func()) *http.Request {
		return func(t *testing.T, w *world, ctx context.Context, settled func()) *http.Request {
			r := request(t, "PUT", "https://"+apiHost+"/b/k", &stalling{ctx, strings.NewReader(head), newEndless(size), settled})
			hash := said
			if said == "" {
				hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
			} else {
				r.Header.Set(sigv4.ContentSHA256Header, said)
			}
			return guestSigns(t, r, w, hash, "s3", "eu-central-1")
		}
	}
	for name, attack := range map[string]struct {
		world func(*testing.T) *world
		req   func(*testing.T, *world, context.Context, func()) *http.Request
		read  int64 // of the answer
	}{
		"bodies to be hashed":        {aws, signed("", "", 8<<20-1), 0},
		"signed chunks":              {aws, signed("1000000;chunk-signature="+strings.Repeat("0", 64)+"\r\n", sigv4.StreamingPayload, 16<<20-10), 0},
		"chunk lines without an end": {aws, signed("", sigv4.StreamingPayload, 32<<20), 0},
		"answers in brotli": {func(t *testing.T) *world {
			return newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Encoding", "br")
				_, _ = rw.Write(packed.Bytes())
			}, withSecret(secretIn(t, header("Authorization"))), withMemory(budget))
		}, func(t *testing.T, _ *world, ctx context.Context, _ func()) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil).WithContext(ctx)
		}, int64(window-1) << 20},
		"heads that get values": {func(t *testing.T) *world {
			return newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, withSecret(longValue(t, 8000, header("Authorization"))), withMemory(budget))
		}, func(t *testing.T, w *world, ctx context.Context, settled func()) *http.Request {
			r := request(t, "POST", "https://"+apiHost+"/", &stalling{ctx, strings.NewReader("x"), newEndless(1), settled})
			r.Header.Set("Authorization", strings.Repeat(w.placeholder(), 3000))
			return r
		}, 0},
	} {
		w := attack.world(t)
		before := heapNow()
		ctx, cancel := context.WithCancel(t.Context())
		var stands, ended sync.WaitGroup
		var bodies sync.Map
		for i := range requests {
			stands.Add(1)
			once := sync.OnceFunc(stands.Done)
			r := attack.req(t, w, ctx, once)
			client := w.client(apiHost, apiAddr, false)
			ended.Go(func() {
				defer once()
				resp, err := client.Do(r.WithContext(ctx))
				if err != nil {
					return
				}
				bodies.Store(i, resp.Body)
				_, _ = io.CopyN(io.Discard, resp.Body, attack.read)
			})
		}
		stands.Wait()
		grown := heapNow() - before
		if testing.Verbose() {
			t.Logf("%s: %d requests, the heap grew by %d MiB, held %d MiB", name, requests, grown>>20, w.proxy.Stats().Held>>20)
		}
		if grown > budget+slack {
			t.Errorf("%s: %d requests made the heap grow by %d MiB, with a budget of %d", name, requests, grown>>20, budget>>20)
		}
		cancel()
		ended.Wait()
		bodies.Range(func(_, b any) bool { _ = b.(io.Closer).Close(); return true })
	}
}
