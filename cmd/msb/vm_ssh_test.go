//go:build vmtest

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/agent"

	"github.com/msb-project/msb/sandbox"
)

// sshClients are OpenSSH's programs with the configuration that msb printed.
type sshClients struct {
	t           *testing.T
	env         []string
	dir, config string
}

// run runs one of OpenSSH's programs, or one that uses ssh.
func (c *sshClients) run(stdin, program string, args ...string) result {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Env = append(append(os.Environ(), asMSB+"=1"), c.env...)
	cmd.Stdin, cmd.Dir = strings.NewReader(stdin), c.dir
	return finish(c.t, cmd)
}

func (c *sshClients) ssh(args ...string) result {
	c.t.Helper()
	return c.run("", "ssh", append([]string{"-F", c.config}, args...)...)
}

// startSSH starts a sandbox with programs for ssh's clients and prints its configuration.
func startSSH(t *testing.T) (*sshClients, func(args ...string) result) {
	t.Helper()
	var programs []string
	for _, name := range []string{"ssh", "sftp", "scp", "rsync", "git", "ssh-add", "perl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v; scripts/setup --test installs it", err)
		}
		if name == "rsync" || name == "git" || name == "ssh-add" || name == "perl" {
			programs = append(programs, path)
		}
	}
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	image := "dir:" + programImage(t, programs...)
	msb("create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", "-e", "TOKEN=of-the-sandbox", "s", image).want(t, 0, "s\n")
	policy := write(t, "ssh.toml", "version = 1\n[ssh]\nagent_forwarding = true\nreverse_forwarding = true\nx11_forwarding = true\n")
	msb("create", "-q", "--vm", "qemu", "--trust", "--policy", policy, "back", image).want(t, 0, "back\n")
	t.Cleanup(func() { _ = command(t, home, "rm", "--force", "back").Run() })
	t.Cleanup(func() { _ = command(t, home, "rm", "--force", "s").Run() })
	msb("ssh", "s", "true").says(t, exitSandbox, "msb start s")
	msb("start", "-q", "s").want(t, 0, "s\n")
	c := &sshClients{t: t, env: home, dir: t.TempDir()}
	c.config = write(t, "config", msb("ssh-config").out)
	msb("exec", "s", "--", "sh", "-c", "busybox --install -s /bin 2>/dev/null; mkdir -p /root /tmp; ln -s git /bin/git-upload-pack; ln -s git /bin/git-receive-pack").want(t, 0, "")
	return c, msb
}

// TestVMSSH uses a sandbox with OpenSSH's own client, and programs that use it.
func TestVMSSH(t *testing.T) {
	c, msb := startSSH(t)
	if got := c.run("", os.Args[0], "ssh", "s", "echo out; echo err >&2; exit 7"); got.out != "out\n" || got.err != "err\n" || got.code != 7 {
		t.Errorf("msb ssh: %+v", got)
	}
	c.run("in\n", "ssh", "-F", c.config, "s.msb", "cat; pwd; echo $TOKEN").want(t, 0, "in\n/root\nof-the-sandbox\n")
	c.run("echo from $HOME\nexit 3\n", "ssh", "-F", c.config, "s.msb").want(t, 3, "from /root\n")
	c.ssh("-tt", "s.msb", "[ -t 0 ] && echo terminal $TERM").want(t, 0, "terminal "+os.Getenv("TERM")+"\r\n")
	c.ssh("s.msb", "kill -9 $$").want(t, 255, "")
	c.ssh("-l", "user", "s.msb", "id -u").want(t, 0, "1000\n")
	c.ssh("-l", "nobody-of-that-name", "s.msb", "id").says(t, 255, "nobody-of-that-name")
	c.ssh("-o", "SetEnv=LC_X=passed TOKEN=replaced", "s.msb", "echo $LC_X $TOKEN").want(t, 0, "passed of-the-sandbox\n")

	c.ssh("-o", "UserKnownHostsFile=/dev/null", "s.msb", "true").says(t, 255, "Host key verification failed")
	c.ssh("-o", "PreferredAuthentications=password,keyboard-interactive", "s.msb", "true").says(t, 255, "Permission denied (publickey)")

	t.Run("end", func(t *testing.T) { c.end(t) })
	t.Run("files", func(t *testing.T) { c.files(t) })
	t.Run("forwarding", func(t *testing.T) { c.forwarding(t) })
	msb("start", "-q", "back").want(t, 0, "back\n")
	t.Run("back", func(t *testing.T) { c.back(t) })
	t.Run("udp", func(t *testing.T) { udpOfLoopback(t, msb, "back") })
	for name, want := range map[string][2]int{"back": {3, 0}, "s": {0, 3}} {
		events := msb("events", name, "--filter", "event=ssh.forward", "--json")
		if got := [2]int{strings.Count(events.out, `"allow"`), strings.Count(events.out, `"deny"`)}; got != want {
			t.Errorf("the log of %s has %v, want %v allowed and denied: %s", name, got, want, events.out)
		}
	}
	msb("rm", "--force", "back").want(t, 0, "back\n")

	keys := func() string {
		b, err := os.ReadFile(filepath.Join(strings.TrimPrefix(c.env[0], sandbox.EnvHome+"="), "sandboxes", "s", "ssh_client_key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := keys()
	t.Run("stop", func(t *testing.T) { c.stop(t, msb) })
	msb("rm", "--force", "s").want(t, 0, "s\n")
	msb("create", "-q", "--vm", "qemu", "--no-net", "s").want(t, 0, "s\n")
	if got := msb("ssh-config", "s"); got.code != 0 || keys() == before {
		t.Errorf("a sandbox has the key of one that was removed: %+v", got)
	}
}

// end kills a client: its command ends, and what an earlier one left in the background runs on.
func (c *sshClients) end(t *testing.T) {
	c.ssh("s.msb", "busybox setsid sleep 1001 </dev/null >/dev/null 2>&1 & echo $! >/tmp/background").want(t, 0, "")
	client := exec.CommandContext(t.Context(), "ssh", "-F", c.config, "s.msb", "echo $$ >/tmp/command; echo runs; exec sleep 1002")
	client.Env = append(append(os.Environ(), asMSB+"=1"), c.env...)
	var out transcript
	client.Stdout = &out
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, "runs")
	_ = client.Process.Kill()
	_ = client.Wait() // it was killed
	eventually(t, "the end of a command whose client was killed", func() bool {
		return c.ssh("s.msb", "kill -0 $(cat /tmp/command) 2>/dev/null || echo ended").out == "ended\n"
	})
	c.ssh("s.msb", "kill -0 $(cat /tmp/background) && echo runs").want(t, 0, "runs\n")
}

// stop stops the sandbox under two clients, one of which has stopped reading. The other one says why it ends.
func (c *sshClients) stop(t *testing.T, msb func(args ...string) result) {
	start := func(command string) (*exec.Cmd, *transcript) {
		client := exec.CommandContext(t.Context(), "ssh", "-F", c.config, "s.msb", command)
		client.Env = append(append(os.Environ(), asMSB+"=1"), c.env...)
		out := new(transcript)
		client.Stdout, client.Stderr = out, out
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		out.await(t, "runs")
		return client, out
	}
	hangs, _ := start("echo runs; exec yes")
	_ = hangs.Process.Signal(syscall.SIGSTOP)
	defer func() { _ = hangs.Process.Kill(); _ = hangs.Wait() }()
	c.ssh("s.msb", "echo beside one that hangs").want(t, 0, "beside one that hangs\n")
	client, out := start("echo runs; exec sleep 1003")
	msb("stop", "s").want(t, 0, "s\n")
	out.await(t, "s was stopped meanwhile")
	if _ = client.Wait(); client.ProcessState.ExitCode() != 255 {
		t.Errorf("ssh ended with %d", client.ProcessState.ExitCode())
	}
}

// files carries a file there and back by each way.
func (c *sshClients) files(t *testing.T) {
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	if err := os.Mkdir(c.dir+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.dir+"/d/big", big, 0o640); err != nil {
		t.Fatal(err)
	}
	same := func(what, back string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(c.dir, back))
		if info, e := os.Stat(filepath.Join(c.dir, back)); err != nil || e != nil || !bytes.Equal(b, big) || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %d bytes, %v, %v", what, len(b), err, e)
		}
	}
	ok := func(got result) {
		t.Helper()
		if got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
	ok(c.run("put -p d/big one\nrename one two\nget -p two by-sftp\nmkdir sub\nrm two\n-rm nothing\n", "sftp", "-q", "-F", c.config, "-b", "-", "s.msb"))
	same("sftp", "by-sftp")
	ok(c.run("", "scp", "-q", "-p", "-r", "-F", c.config, "d", "s.msb:by-scp"))
	ok(c.run("", "scp", "-q", "-p", "-F", c.config, "s.msb:by-scp/big", "by-scp"))
	same("scp", "by-scp")
	ok(c.run("", "rsync", "-a", "-e", "ssh -F "+c.config, "d/", "s.msb:by-rsync/"))
	ok(c.run("", "rsync", "-a", "-e", "ssh -F "+c.config, "s.msb:by-rsync/big", "by-rsync"))
	same("rsync", "by-rsync")
	c.run("", "scp", "-q", "-o", "User=user", "-F", c.config, "d/big", "s.msb:/root/of-user").says(t, 1, "ermission denied")
	ok(c.run("", "scp", "-q", "-o", "User=user", "-F", c.config, "d/big", "s.msb:/tmp/of-user"))
	c.ssh("s.msb", "chmod 700 /root; stat -c %u /tmp/of-user; ls /root").want(t, 0, "1000\nby-rsync\nby-scp\nsub\n")

	ok(c.ssh("s.msb", "git init -q repo && cd repo && echo text > f && git add f && git -c user.name=x -c user.email=x@example.com commit -q -m one"))
	ok(c.run("", "git", "-c", "core.sshCommand=ssh -F "+c.config, "clone", "-q", "s.msb:repo", "clone"))
	if b, err := os.ReadFile(c.dir + "/clone/f"); err != nil || string(b) != "text\n" {
		t.Errorf("git: %q, %v", b, err)
	}
}

// emptyAgent is the socket of an agent without keys.
func emptyAgent(t *testing.T) string {
	t.Helper()
	return agentWith(t, agent.NewKeyring())
}

func agentWith(t *testing.T, keys agent.Agent) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _ = agent.ServeAgent(keys, conn) }()
		}
	}()
	return l.Addr().String()
}

// forwarding reaches a server on the guest's loopback, and asks for what would lead around the policy.
func (c *sshClients) forwarding(t *testing.T) {
	c.ssh("s.msb", "echo from the guest > /tmp/page; busybox httpd -p 127.0.0.1:8080 -h /tmp").want(t, 0, "")
	const ask = "GET /page HTTP/1.0\r\n\r\n"
	if got := c.run(ask, "ssh", "-F", c.config, "-W", "localhost:8080", "s.msb"); got.code != 0 || !strings.HasSuffix(got.out, "\r\n\r\nfrom the guest\n") {
		t.Errorf("-W: %+v", got)
	}
	socket := filepath.Join(t.TempDir(), "l")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	local := exec.CommandContext(ctx, "ssh", "-F", c.config, "-N", "-o", "ExitOnForwardFailure=yes", "-L", socket+":127.0.0.1:8080", "s.msb")
	local.Env = append(append(os.Environ(), asMSB+"=1"), c.env...)
	local.Cancel = func() error { return local.Process.Signal(os.Interrupt) }
	if err := local.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = local.Wait() }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	var body string
	eventually(t, "an answer through -L", func() bool {
		resp, err := client.Get("http://guest/page")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		body = string(b)
		return err == nil
	})
	if body != "from the guest\n" {
		t.Errorf("-L: %q", body)
	}

	c.ssh("-W", "192.0.2.1:80", "s.msb").says(t, 255, "administratively prohibited", "loopback")
	c.ssh("-o", "ExitOnForwardFailure=yes", "-R", "8081:localhost:80", "s.msb", "echo ran").says(t, 255, "remote port forwarding failed")
	c.ssh("-o", "IdentityAgent="+emptyAgent(t), "-A", "s.msb", "echo [$SSH_AUTH_SOCK]").want(t, 0, "[]\n")
	c.env = append(c.env, "DISPLAY=127.0.0.1:99")
	got := c.ssh("-X", "s.msb", "echo [$DISPLAY]")
	got.want(t, 0, "[]\n")
	got.says(t, 0, "X11 forwarding request failed", "x11_forwarding = true")
}

// back has programs of a guest whose policy allows it use the client's agent and a server of the client's.
func (c *sshClients) back(t *testing.T) {
	keys := agent.NewKeyring()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err == nil {
		err = keys.Add(agent.AddedKey{PrivateKey: private, Comment: "of-the-client"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ssh("-o", "IdentityAgent="+agentWith(t, keys), "-A", "back.msb", "ssh-add -l; stat -c %a $SSH_AUTH_SOCK"); got.code != 0 || !strings.Contains(got.out, "of-the-client") || !strings.HasSuffix(got.out, "\n600\n") {
		t.Errorf("-A: %+v", got)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "from the client\n")
			conn.Close()
		}
	}()
	c.ssh("-o", "ExitOnForwardFailure=yes", "-R", "8081:"+l.Addr().String(), "back.msb", "busybox nc 127.0.0.1 8081 </dev/null").want(t, 0, "from the client\n")
	c.display(t)
}

// display has a program of the guest open a window of the client's: what the guest's xauth was given is the cookie of its
// connection, which the client's ssh checks.
func (c *sshClients) display(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		setup := make([]byte, 12+20+16)
		_, _ = io.ReadFull(conn, setup)
		asked <- setup
		_, _ = io.WriteString(conn, "from the display\n")
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	number, _ := strconv.Atoi(port)
	c.env = append(c.env, fmt.Sprintf("DISPLAY=127.0.0.1:%d", number-6000))
	const program = `printf '#!/bin/sh\ncat > /cookie\n' > /bin/xauth && chmod 755 /bin/xauth`
	c.ssh("back.msb", program).want(t, 0, "")
	const window = `n=${DISPLAY#localhost:}; n=${n%%.*}; { printf 'l\0\013\0\0\0\022\0\020\0\0\0MIT-MAGIC-COOKIE-1\0\0'; cut -d ' ' -f 4 /cookie | xxd -r -p; sleep 1; } | busybox nc 127.0.0.1 $((6000 + n))`
	if got := c.ssh("-Y", "back.msb", window); got.code != 0 || got.out != "from the display\n" {
		t.Errorf("-Y: %+v", got)
	}
	select {
	case setup := <-asked:
		if !bytes.HasPrefix(setup, []byte("l\x00\x0b\x00")) || !bytes.Contains(setup, []byte("MIT-MAGIC-COOKIE-1")) {
			t.Errorf("the display was asked %q", setup)
		}
	default:
		t.Error("nobody connected to the display")
	}
}

// udpOfLoopback publishes a UDP port whose server listens on the guest's 127.0.0.1 alone.
func udpOfLoopback(t *testing.T, msb func(args ...string) result, name string) {
	t.Helper()
	const echo = `socket(S, 2, 2, 0); bind(S, pack("S n C4 x8", 2, 5353, 127, 0, 0, 1)) || die; while ($a = recv(S, $d, 2000, 0)) { send(S, "again: $d", 0, $a) }`
	if got := msb("exec", "-d", name, "--", "perl", "-e", echo); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	host, _, _ := strings.Cut(msb("port", "add", name, "0:5353/udp").out, ":")
	conn, err := net.Dial("udp4", "127.0.0.1:"+host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 100)
	eventually(t, "an answer over UDP of a server on the guest's 127.0.0.1", func() bool {
		if _, err := conn.Write([]byte("ping")); err != nil {
			return false
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(answer)
		return err == nil && string(answer[:n]) == "again: ping"
	})
}
