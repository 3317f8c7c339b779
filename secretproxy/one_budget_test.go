package secretproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
)

// TestI11_ValuesAndRequestsShareOneBudget: what requests hold and what the spellings of values take is one number
// against one bound. Values take half of it at most; with no room left, a mint is refused as a request is.
func TestI11_ValuesAndRequestsShareOneBudget(t *testing.T) {
	t.Parallel()
	const total = 1 << 20
	s := secretIn(t, header("Authorization"))
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"access_token":"real-access-token-%s"}`, r.URL.Query().Get("n"))
	}, withSecret(s), withMemory(total))
	c := w.client(apiHost, apiAddr, false)
	n := 0
	mint := func() (status int, reason string) {
		n++
		resp, body := do(t, c, request(t, "GET", fmt.Sprintf("https://%s/token?n=%03d", apiHost, n), nil))
		if strings.Contains(body, "real-access") {
			t.Fatalf("the guest got %s", body)
		}
		return resp.StatusCode, resp.Header.Get("X-Msb-Reason")
	}
	if status, _ := mint(); status != http.StatusOK {
		t.Fatalf("the first mint: %d", status)
	}
	others := &memory.Hold{Budget: w.proxy.memory}
	if got := w.proxy.Stats(); got.Values < 2*needleCost || !others.Take(total-got.Held) {
		t.Fatalf("%+v", got)
	}
	if _, err := w.proxy.known.keep([]byte("another-value-while-requests-hold-all"), &s, "msb_x"); !errors.Is(err, memory.ErrFull) {
		t.Errorf("a value where there is no room: %v", err)
	}
	if status, reason := mint(); status != http.StatusServiceUnavailable || reason != "memory" {
		t.Errorf("a mint where there is no room: %d %s", status, reason)
	}
	others.Release()
	status, reason := mint()
	for ; status == http.StatusOK && n < 100; status, reason = mint() {
		if got := w.proxy.Stats(); got.Held < got.Values || got.Held > total {
			t.Fatalf("%+v", got)
		}
	}
	got := w.proxy.Stats()
	if status != http.StatusBadGateway || reason != "secret_values_full" || got.Values > total/2 || got.Values < total/2-2*needleCost {
		t.Errorf("the last of %d mints: %d %s, %+v", n, status, reason, got)
	}
	givesAllBack(t, "mints", w, c)
}

// collected reports whether the garbage collector takes a finder.
func collected(finder weak.Pointer[mask.Set]) bool {
	for range 3 {
		runtime.GC()
	}
	return finder.Value() == nil
}

// TestI11_OpenUploadsKeepNoOldFinder: a guest opens an upload, mints, opens another one, and so on; each would keep
// the placeholders of its time compiled. The table in force keeps its own.
func TestI11_OpenUploadsKeepNoOldFinder(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"), policies.Place{Kind: policies.InBody})
	s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	for _, http2 := range []bool{true, false} {
		begun := make(chan struct{}, 1)
		got := make(chan string, 1)
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				_, _ = io.WriteString(rw, `{"access_token":"real-access-token"}`)
				return
			}
			first := make([]byte, 5)
			_, _ = io.ReadFull(r.Body, first)
			begun <- struct{}{}
			rest, _ := io.ReadAll(r.Body)
			got <- string(first) + string(rest)
		}, withSecret(s))
		c := w.client(apiHost, apiAddr, http2)
		body, write := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			resp, err := c.Do(request(t, "POST", "https://"+apiHost+"/upload", body))
			if err == nil {
				err = resp.Body.Close()
			}
			ended <- err
		}()
		_, _ = io.WriteString(write, "begun and")
		<-begun
		finder := weak.Make(w.proxy.state.Load().table.Load().finder)
		if collected(finder) {
			t.Fatal("the finder in force is gone: this proves nothing")
		}
		if resp, text := do(t, c, request(t, "GET", "https://"+apiHost+"/token", nil)); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		if !collected(finder) {
			t.Errorf("http2 %v: the upload keeps a finder that was replaced", http2)
		}
		_, _ = io.WriteString(write, " "+w.placeholder())
		_ = write.Close()
		if err := <-ended; err != nil {
			t.Fatalf("http2 %v: %v", http2, err)
		}
		if text := <-got; text != "begun and "+realValue {
			t.Errorf("http2 %v: the server got %q", http2, text)
		}
	}
}
