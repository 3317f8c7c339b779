package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// silent is a registry that never answers. It tells when it was asked.
func silent(t *testing.T) (ref string, asked <-chan struct{}) {
	t.Helper()
	ch, end := make(chan struct{}, 16), make(chan struct{})
	registry := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ch <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(end)
		registry.Close()
	})
	return strings.TrimPrefix(registry.URL, "http://") + "/x:1", ch
}

// A registry that never answers: the signal that ends the wait is the exit code.
func TestI12_SignalsDuringAPull(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run"}, {"run", "-d", "--name", "web"}, {"create", "web"}, {"image", "pull"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			ref, asked := silent(t)
			cmd := command(t, nil, append(args[:len(args):len(args)], ref)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-asked:
			case <-time.After(time.Minute):
				t.Fatalf("%v: the registry was not asked", args)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != exitSignalled(sig) {
				t.Errorf("%v, %v: exit %d", args, sig, got)
			}
		}
	}
}
