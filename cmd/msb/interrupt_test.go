package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
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

// TestI12_SignalsEndWhateverWaits: a SIGTERM was caught for all commands, and did nothing for those that don't look for
// it. A resolver that never answers.
func TestI12_SignalsEndWhateverWaits(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		endsBy(t, sig, func(args ...string) *exec.Cmd { return command(t, nil, args...) })
	}
}

// endsBy has msb ask a resolver that never answers, sends it a signal meanwhile, and wants it to end by that signal.
func endsBy(t *testing.T, sig syscall.Signal, msb func(args ...string) *exec.Cmd) {
	t.Helper()
	for try := 1; ; try++ {
		server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		policy := write(t, "policy.toml", "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[dns]\nservers = [\"udp://"+server.LocalAddr().String()+"\"]\n")
		cmd := msb("dns", "--trust", "--policy", policy, "a.example")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = server.SetReadDeadline(time.Now().Add(time.Minute))
		if _, _, err := server.ReadFromUDP(make([]byte, 512)); err != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("%q: %v, %v", cmd.Args, err, cmd.Wait())
		}
		_ = cmd.Process.Signal(sig) // it has ended already, or not
		_ = cmd.Wait()
		_ = server.Close() // the next one asks one of its own
		st := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case st.Signaled() && st.Signal() == sig:
			return
		case st.ExitStatus() == exitOther && try < 20: // it gave the resolver up before the signal came
		default:
			t.Fatalf("%q, %v: %v", cmd.Args, sig, cmd.ProcessState)
		}
	}
}

// A registry that never answers: the signal that ends the wait is the exit code.
func TestI12_SignalsEndAPull(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run"}, {"run", "-d", "--name", "web"}, {"create", "web"}, {"image", "pull"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			ref, asked := silent(t)
			cmd := command(t, nil, append(args[:len(args):len(args)], ref)...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
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
			if n := strings.Count(errs.String(), "interrupted before "); n != 1 || !strings.Contains(errs.String(), "nothing of it stays") {
				t.Errorf("%v, %v: %s", args, sig, &errs)
			}
		}
	}
}
