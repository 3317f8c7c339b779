package sshd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

// TestCommandsAreCarried looks at what reaches the guest, and at what comes back.
func TestCommandsAreCarried(t *testing.T) {
	t.Parallel()
	var got agentclient.ExecOptions
	g := &fakeGuest{exec: func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		got = o
		in, err := io.ReadAll(o.Stdin) // ends with the client's half
		if err == nil {
			_, err = o.Stdout.Write(in)
		}
		if err == nil {
			_, err = o.Stderr.Write([]byte("apart"))
		}
		return agentclient.ExitStatus{Code: 7}, err
	}}
	for user, want := range map[string]string{anyUser: "app", "root": "root"} {
		s := serve(t, g, func(_ *Server, c *ssh.ClientConfig) { c.User = user })
		session := s.session(t)
		var out, errs bytes.Buffer
		session.Stdin, session.Stdout, session.Stderr = strings.NewReader("to and fro"), &out, &errs
		if err := session.Run("a | b"); status(err) != 7 || out.String() != "to and fro" || errs.String() != "apart" {
			t.Errorf("%v, %q, %q", err, out.String(), errs.String())
		}
		if !slices.Equal(got.Argv, []string{"sh", "-c", inHome, "sh", "-c", "a | b"}) || got.User != want || got.TTY || got.AgentsOwn || len(got.Env) > 0 {
			t.Errorf("the guest runs %+v", got)
		}
	}
}

// TestCommandsReportTheirEnd tells signals and failures from exit codes.
func TestCommandsReportTheirEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  agentclient.ExitStatus
		err     error
		code    int
		signal  string
		message string
	}{
		{status: agentclient.ExitStatus{Code: 0}},
		{status: agentclient.ExitStatus{Code: 255}, code: 255},
		{status: agentclient.ExitStatus{Code: 137, Signal: 9}, code: 128 + 9, signal: "KILL"},
		{status: agentclient.ExitStatus{Code: 128 + 31, Signal: 31}, code: 128 + 31},
		{status: agentclient.ExitStatus{Code: 137, Signal: 9, OOMKilled: true}, code: 128 + 9, signal: "KILL", message: "msb: the command was killed because the guest ran out of memory\n"},
		{status: agentclient.ExitStatus{Code: 127, StartError: agentclient.NotFound, Message: "sh: not found"}, code: 127, message: "msb: sh: not found\n"},
		{err: errors.New("no such user"), code: 255, message: "msb: no such user\n"},
	} {
		s := serve(t, &fakeGuest{exec: func(context.Context, agentclient.ExecOptions) (agentclient.ExitStatus, error) { return c.status, c.err }})
		session := s.session(t)
		var errs bytes.Buffer
		session.Stderr = &errs
		err := session.Run("x")
		var exit *ssh.ExitError
		signal := ""
		if errors.As(err, &exit) {
			signal = exit.Signal()
		}
		if status(err) != c.code || signal != c.signal || errs.String() != c.message {
			t.Errorf("%+v: got %d, %q and %q", c, status(err), signal, errs.String())
		}
	}
}

// TestTerminalsAndSignals opens a terminal, changes its size, and sends a signal.
func TestTerminalsAndSignals(t *testing.T) {
	t.Parallel()
	g := &fakeGuest{exec: func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		if !o.TTY || o.Size != (agentclient.Size{Rows: 24, Cols: 80}) || !slices.Equal(o.Env, []string{"TERM=vt100"}) || !slices.Equal(o.Argv, []string{"sh", "-c", inHome, "sh"}) {
			t.Errorf("the guest runs %+v", o)
		}
		_, _ = o.Stdout.Write([]byte("ready"))
		if size := <-o.Resize; size != (agentclient.Size{Rows: 50, Cols: 65535}) {
			t.Errorf("resized to %+v", size)
		}
		n := <-o.Signals
		return agentclient.ExitStatus{Code: 128 + int(n), Signal: n}, nil
	}}
	session := serve(t, g).session(t)
	out, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.RequestPty("vt100", 24, 80, ssh.TerminalModes{ssh.ECHO: 0}); err != nil {
		t.Fatal(err)
	}
	if err := session.Shell(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(session.WindowChange(50, 1<<20), session.Signal(ssh.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.Signal() != "USR1" {
		t.Errorf("got %v", err)
	}
}

// TestI8_OnlyTerminalAndLanguageVariablesPass sets variables that are passed on, and others that could stand in a
// placeholder's place.
func TestI8_OnlyTerminalAndLanguageVariablesPass(t *testing.T) {
	t.Parallel()
	env := make(chan []string, 1)
	g := &fakeGuest{exec: func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		env <- o.Env
		return agentclient.ExitStatus{}, nil
	}}
	session := serve(t, g).session(t)
	want := []string{"LANG=C.UTF-8", "LC_ALL=C", "TERM=xterm", "COLORTERM=truecolor"}
	for _, e := range want {
		name, value, _ := strings.Cut(e, "=")
		if err := session.Setenv(name, value); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	for _, name := range []string{"GITHUB_TOKEN", "PATH", "HOME", "LD_PRELOAD", "LANG=x", "lang", "LC_", "LC_a", "LC_A=", "", "LANG\x00"} {
		if session.Setenv(name, "x") == nil {
			t.Errorf("%q was passed on", name)
		}
	}
	if session.Setenv("LANG", "a\x00b") == nil {
		t.Error("a NUL was passed on")
	}
	if err := session.Run("x"); err != nil {
		t.Fatal(err)
	}
	if got := <-env; !slices.Equal(got, want) {
		t.Errorf("the guest gets %q", got)
	}
}

// TestSubsystems opens the one that there is, and others.
func TestSubsystems(t *testing.T) {
	t.Parallel()
	ran := make(chan agentclient.ExecOptions, 1)
	g := &fakeGuest{exec: func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		ran <- o
		return agentclient.ExitStatus{}, nil
	}}
	s := serve(t, g)
	if err := s.session(t).RequestSubsystem("sftp"); err != nil {
		t.Fatal(err)
	}
	if o := <-ran; !o.AgentsOwn || !slices.Equal(o.Argv, []string{agentpb.SFTPServer}) || o.User != "app" {
		t.Errorf("the guest runs %+v", o)
	}
	for _, name := range []string{"", "netconf", "sftp ", "../sftp"} {
		if s.session(t).RequestSubsystem(name) == nil {
			t.Errorf("there is a subsystem %q", name)
		}
	}
}

// TestCommandsEndWithTheirClient: a command gets SIGHUP when its client goes, and is killed if that doesn't end it.
func TestCommandsEndWithTheirClient(t *testing.T) {
	t.Parallel()
	for what, deaf := range map[string]bool{"hung up": false, "killed": true} {
		ran, how := make(chan struct{}), make(chan string, 1)
		s := serve(t, &fakeGuest{exec: func(ctx context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
			close(ran)
			if n := <-o.Signals; n != agentclient.SIGHUP {
				t.Errorf("%s: signal %d", what, n)
			}
			if _, err := o.Stdout.Write([]byte("nobody reads this")); err != nil {
				t.Errorf("%s: output ended the command: %v", what, err)
			}
			if !deaf {
				how <- "hung up"
				return agentclient.ExitStatus{Signal: 1}, nil
			}
			<-ctx.Done()
			how <- "killed"
			return agentclient.ExitStatus{}, ctx.Err()
		}}, func(s *Server, _ *ssh.ClientConfig) {
			if !deaf {
				s.hangup = hangupWait
			}
		})
		if err := s.session(t).Start("x"); err != nil {
			t.Fatal(err)
		}
		<-ran
		s.Close()
		if got := <-how; got != what {
			t.Errorf("got %s, want %s", got, what)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRequestsComeBeforeTheCommand refuses a second command, and what would change the first.
func TestRequestsComeBeforeTheCommand(t *testing.T) {
	t.Parallel()
	g := localGuest(t, agentclient.BackAgent, agentclient.BackX11)
	g.exec = waits().exec
	channel, requests, err := serve(t, g).OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go ssh.DiscardRequests(requests)
	ask := func(name string, payload any) bool {
		var raw []byte
		if payload != nil {
			raw = ssh.Marshal(payload)
		}
		ok, err := channel.SendRequest(name, true, raw)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	type text struct{ Text string }
	type variable struct{ Name, Value string }
	for _, early := range []string{"signal", "window-change"} {
		if ask(early, text{"HUP"}) {
			t.Errorf("%s before there is a command", early)
		}
	}
	if ask("exec", text{strings.Repeat("x", maxCommand+1)}) || ask("exec", nil) {
		t.Error("a command that can't be one was taken")
	}
	if !ask("env", variable{"LANG", "C"}) || !ask("exec", text{"x"}) {
		t.Fatal("the command was not taken")
	}
	if ask("exec", text{"y"}) || ask("shell", nil) || ask("subsystem", text{"sftp"}) || ask("env", variable{"LANG", "C"}) || ask("signal", text{"NONE"}) ||
		ask("auth-agent-req@openssh.com", nil) || ask("x11-req", x11{Protocol: "MIT-MAGIC-COOKIE-1", Cookie: "00"}) {
		t.Error("a request behind the command was taken")
	}
}

// TestI11_TerminalsAreBounded asks for terminals that can't be one, and for a second one. A subsystem has none.
func TestI11_TerminalsAreBounded(t *testing.T) {
	t.Parallel()
	g := waits()
	sizes := make(chan agentclient.Size, 1)
	g.exec = func(_ context.Context, o agentclient.ExecOptions) (agentclient.ExitStatus, error) {
		sizes <- o.Size
		return agentclient.ExitStatus{}, errors.New("no such user")
	}
	s := serve(t, g)
	session := s.session(t)
	modes := ssh.TerminalModes{}
	for _, term := range []string{strings.Repeat("x", maxVariable+1), "vt\x00100"} {
		if session.RequestPty(term, 24, 80, modes) == nil {
			t.Errorf("%.10q is a terminal", term)
		}
	}
	if err := session.RequestPty(strings.Repeat("x", maxVariable), 1<<17, 65535, modes); err != nil {
		t.Error(err)
	}
	if session.RequestPty("vt100", 24, 80, modes) == nil {
		t.Error("there is a second terminal")
	}
	if session.RequestSubsystem("sftp") == nil {
		t.Error("a subsystem has a terminal")
	}
	var errs bytes.Buffer
	session.Stderr = &errs
	if err := session.Run("x"); status(err) != 255 || errs.String() != "msb: no such user\r\n" {
		t.Errorf("%v: %q", err, errs.String())
	}
	if got := <-sizes; got != (agentclient.Size{Rows: 65535, Cols: 65535}) {
		t.Errorf("the guest's terminal has %+v", got)
	}
}
