//go:build !vmtest

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/sandbox/sshd"
)

// sshStream opens a session with a sandbox and carries one end of a pipe to its SSH server, as ssh-proxy does.
func sshStream(t *testing.T, h *Home, name string) (near net.Conn, ended chan error) {
	t.Helper()
	sb, err := h.Connect(t.Context(), name)
	must(t, err)
	near, far := net.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- sb.SSH(t.Context(), far, far, func(text string) { t.Log(text) })
		_ = far.Close()
		_ = sb.Close()
	}()
	t.Cleanup(func() { _ = near.Close() })
	return near, ended
}

// sshClient is a client with the sandbox's key.
func sshClient(t *testing.T, h *Home, name string) (client *ssh.Client, ended chan error) {
	t.Helper()
	_, err := sshd.OpenKeys(namedPath(h, name))
	must(t, err)
	text, err := os.ReadFile(namedPath(h, name, state.SSHClientKey))
	must(t, err)
	key, err := ssh.ParsePrivateKey(text)
	must(t, err)
	near, ended := sshStream(t, h, name)
	conn, channels, requests, err := ssh.NewClientConn(near, name, &ssh.ClientConfig{User: "msb", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	must(t, err)
	return ssh.NewClient(conn, channels, requests), ended
}

// sshOutput runs a command of the fake guest.
func sshOutput(t *testing.T, c *ssh.Client, command string) string {
	t.Helper()
	session, err := c.NewSession()
	must(t, err)
	out, err := session.Output(command)
	must(t, err)
	return string(out)
}

// TestSSHIsTheSupervisors has clients of one supervisor use its SSH server: one hangs, one sends garbage, one is killed in
// the middle. Others work, the log has a line for each stage of each command, and the sandbox's end ends what is open.
// Not parallel: it forks.
func TestSSHIsTheSupervisors(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(t, Create(t.Context(), operation{Home: h.Dir(), Root: root, Name: "web"}.config()))
	sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
	must(t, err)
	must(t, sb.Close())
	defer func() { must(t, h.Remove(context.Background(), "web")) }()

	first, firstEnded := sshClient(t, h, "web")
	hanging, err := first.NewSession()
	must(t, err)
	must(t, hanging.Start("wait"))

	silent, silentEnded := sshStream(t, h, "web") // it reads nothing, not even the greeting
	garbage, garbageEnded := sshStream(t, h, "web")
	go func() { _, _ = io.Copy(io.Discard, garbage) }()
	_, err = garbage.Write(bytes.Repeat([]byte{0}, 1<<16))
	if got := <-garbageEnded; got == nil || !strings.Contains(got.Error(), "the ssh client: ssh: ") {
		t.Errorf("garbage: %v (sent: %v)", got, err)
	}
	second, secondEnded := sshClient(t, h, "web")
	if out := sshOutput(t, second, "echo of the second"); out != "of the second\n" {
		t.Errorf("beside one that hangs: %q", out)
	}
	must(t, second.Close())
	if err := <-secondEnded; err != nil {
		t.Errorf("a client that goes: %v", err)
	}
	must(t, silent.Close())
	<-silentEnded
	if running, err := h.Inspect("web"); err != nil || !running.Running {
		t.Fatalf("%+v, %v", running, err)
	}

	log, err := os.ReadFile(namedPath(h, "web", state.AuditLog))
	must(t, err)
	var of []string
	for line := range bytes.Lines(log) {
		var e audit.Event
		must(t, json.Unmarshal(line, &e))
		if e.Program == "sh" {
			of = append(of, string(e.Kind))
		}
	}
	want := []string{string(audit.ExecCreate), string(audit.ExecStart), string(audit.ExecCreate), string(audit.ExecStart), string(audit.ExecDie)}
	if !slices.Equal(of, want) {
		t.Errorf("the log has %q, want %q", of, want)
	}

	must(t, h.Stop(t.Context(), "web"))
	if err := <-firstEnded; !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "msb start web") {
		t.Errorf("stopped in the middle: %v", err)
	}
	if err := hanging.Wait(); err == nil {
		t.Error("a command of a sandbox that stopped ended well")
	}
}
