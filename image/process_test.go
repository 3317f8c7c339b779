package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// otherProcess starts this test binary to resolve ref with the store in dir.
func otherProcess(t *testing.T, dir, ref string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MSB_IMAGE_TEST_HELPER="+ref, "MSB_IMAGE_TEST_STORE="+dir)
	return cmd
}

func TestTwoProcessesDoTheWorkOnce(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", "1"), layerOf(t, "b", "2")}}, "once:v1")
	dir := filepath.Join(t.TempDir(), "images")
	const processes = 4
	outs := make([]string, processes)
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			out, err := otherProcess(t, dir, ref).CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v %s", i, err, out)
			}
			outs[i] = string(out)
		})
	}
	wg.Wait()
	// Config and two layers, each fetched once by one of them; the configuration
	// is read by each before it knows.
	if got := reg.layerGets.Load(); got != 2 {
		t.Errorf("layers were fetched %d times, want 2", got)
	}
	made := 0
	for _, out := range outs {
		if strings.Contains(out, "false") {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d processes made the disk, want 1: %q", made, outs)
	}
}

func TestTwoGoroutinesDoTheWorkOnce(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", "1")}}, "once:v1")
	s := openStore(t, StoreOptions{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Resolve(t.Context(), ref, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := reg.layerGets.Load(); got != 1 {
		t.Errorf("the layer was fetched %d times, want once", got)
	}
}

// A process is killed in the middle of a layer: what it left is not used, the next
// Open removes it, and the next pull works.
func TestI13_KilledPullsAreNotUsed(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", strings.Repeat("x", 1<<20))}, compress: plain}, "big:v1")
	reached := make(chan struct{})
	var once sync.Once
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		_, _ = w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		once.Do(func() { close(reached) })
		<-r.Context().Done()
	}
	reg.layer.Store(&hold)
	dir := filepath.Join(t.TempDir(), "images")
	cmd := otherProcess(t, dir, ref)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	reg.layer.Store(nil)
	left, err := filepath.Glob(filepath.Join(dir, tmpDir, "*"))
	if err != nil || len(left) == 0 {
		t.Fatalf("the kill came too late to test anything: %v %v", left, err)
	}
	s, err := Open(dir, StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ = filepath.Glob(filepath.Join(dir, tmpDir, "*")); len(left) != 0 {
		t.Errorf("Open left %v", left)
	}
	img := mustResolve(t, s, ref, Options{})
	if img.Cached {
		t.Error("a disk of the killed pull was used")
	}
	fsck(t, img.DiskPath)
}

// Open must not remove the staging directory of a pull that is alive.
func TestI13_OpenSparesLivingPulls(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	st, err := s.newStaging()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.dir, StoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(st.dir); err != nil {
		t.Errorf("the staging directory is gone: %v", err)
	}
	st.discard()
	assertEmpty(t, s)
}

func TestI12_CancelLeavesNothing(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", strings.Repeat("x", 1<<20))}, compress: plain}, "big:v1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hold := func(w http.ResponseWriter, r *http.Request, body []byte) {
		_, _ = w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	}
	reg.layer.Store(&hold)
	s := openStore(t, StoreOptions{})
	if _, err := s.Resolve(ctx, ref, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	assertEmpty(t, s)
}

// testRegistry is a registry on loopback, over plain HTTP, that serves blobs from
// memory and can misbehave.
type testRegistry struct {
	*httptest.Server
	mu        sync.Mutex
	blobs     map[string][]byte // path to content
	types     map[string]string
	layerGets atomic.Int64
	gets      atomic.Int64
	// layer answers for layers in place of the honest answer.
	layer atomic.Pointer[func(http.ResponseWriter, *http.Request, []byte)]
	// any answers every request.
	any atomic.Pointer[http.HandlerFunc]
}

func newTestRegistry(t testing.TB) *testRegistry {
	t.Helper()
	r := &testRegistry{blobs: map[string][]byte{}, types: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *testRegistry) host() string {
	return strings.TrimPrefix(strings.TrimPrefix(r.URL, "http://"), "https://")
}

// push stores the image and returns its reference.
func (r *testRegistry) push(t testing.TB, f fixture, nameTag string) string {
	t.Helper()
	dir := t.TempDir()
	d := f.write(t, dir)
	name, tag, _ := strings.Cut(nameTag, ":")
	r.mu.Lock()
	defer r.mu.Unlock()
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		content, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		r.blobs[fmt.Sprintf("/v2/%s/blobs/sha256:%s", name, filepath.Base(b))] = content
		r.blobs[fmt.Sprintf("/v2/%s/manifests/sha256:%s", name, filepath.Base(b))] = content
	}
	manifest, err := os.ReadFile(blobPath(dir, d["digest"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	r.blobs[fmt.Sprintf("/v2/%s/manifests/%s", name, tag)] = manifest
	return r.host() + "/" + nameTag
}

func (r *testRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.gets.Add(1)
	if h := r.any.Load(); h != nil {
		(*h)(w, req)
		return
	}
	r.serve(w, req)
}

// serve answers from what was pushed.
func (r *testRegistry) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v2/" {
		_, _ = io.WriteString(w, "{}")
		return
	}
	r.mu.Lock()
	body, ok := r.blobs[req.URL.Path]
	r.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"not here"}]}`)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if strings.Contains(req.URL.Path, "/manifests/") {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	} else if len(body) > 0 && body[0] != '{' {
		r.layerGets.Add(1)
		if h := r.layer.Load(); h != nil {
			(*h)(w, req, body)
			return
		}
	}
	_, _ = w.Write(body)
}
