package sshd

import (
	"cmp"
	"context"
	"io"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

// session is a channel in which one command runs.
type session struct {
	link    *link
	channel ssh.Channel

	env     []string
	tty     bool
	display bool
	size    agentclient.Size
	resize  chan agentclient.Size
	signals chan agentclient.Signal
	ended   chan struct{} // closed when the command has; nil before it starts
}

// signalQueue is how many signals may wait for a guest that takes none.
const signalQueue = 8

func (l *link) session(ctx context.Context, c ssh.NewChannel) {
	channel, requests, err := c.Accept()
	if err != nil {
		return // the client has gone
	}
	s := &session{link: l, channel: channel, resize: make(chan agentclient.Size, 1), signals: make(chan agentclient.Signal, signalQueue)}
	client := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the command outlives its client by hangupWait
	defer cancel()
	display, closeDisplay := context.WithCancel(client)
	defer closeDisplay()
	for r := range requests {
		ok := s.request(client, display, r)
		if r.WantReply {
			_ = r.Reply(ok, nil) // its only error is that the client has gone
		}
		if ok && s.ended == nil && starts(r.Type) {
			s.start(ctx, r)
		}
	}
	// The client has closed the channel, or gone.
	_ = channel.Close() // its only error is that it is closed already
	if s.ended == nil {
		return
	}
	s.signal(agentclient.SIGHUP)
	select {
	case <-s.ended:
	case <-l.life.Done(): // the guest ends its processes
	case <-time.After(cmp.Or(l.server.hangup, hangupWait)):
	}
	cancel()
	<-s.ended
}

func starts(request string) bool {
	return request == "shell" || request == "exec" || request == "subsystem"
}

// request answers one request of the client's (RFC 4254, section 6). What leads to its agent lasts as long as the client,
// its display as long as the session.
func (s *session) request(client, display context.Context, r *ssh.Request) bool {
	running := s.ended != nil
	switch r.Type {
	case "env":
		return !running && s.setVariable(r.Payload)
	case "pty-req":
		return !running && s.openTerminal(r.Payload)
	case "auth-agent-req@openssh.com":
		return !running && s.useAgent(client)
	case "x11-req":
		return !running && s.openDisplay(display, r.Payload)
	case "shell", "exec", "subsystem":
		_, ok := s.command(r)
		return !running && ok
	case "window-change":
		return s.tty && s.changeSize(r.Payload)
	case "signal":
		return running && s.signalNamed(r.Payload)
	}
	return false
}

// useAgent lets the session's command use the client's ssh agent.
func (s *session) useAgent(client context.Context) bool {
	path, ok := s.link.back.agentSocket(client)
	if ok {
		s.env = append(s.env, "SSH_AUTH_SOCK="+path)
	}
	return ok
}

// inHome runs a command in its user's home, as sshd does, with bash if it is there and sh otherwise.
const inHome = `cd 2>/dev/null; command -v bash >/dev/null && exec bash "$@"; exec sh "$@"`

// command is what a request wants run.
func (s *session) command(r *ssh.Request) (o agentclient.ExecOptions, ok bool) {
	var text struct{ Text string }
	if r.Type != "shell" && ssh.Unmarshal(r.Payload, &text) != nil || len(text.Text) > maxCommand {
		return o, false
	}
	switch r.Type {
	case "exec":
		o.Argv = []string{"sh", "-c", inHome, "sh", "-c", text.Text}
	case "subsystem":
		o.Argv, o.AgentsOwn = []string{agentpb.SFTPServer}, true
		return o, text.Text == "sftp" && !s.tty
	default:
		o.Argv = []string{"sh", "-c", inHome, "sh"}
	}
	return o, true
}

// start runs the command until it ends, and reports how.
func (s *session) start(ctx context.Context, r *ssh.Request) {
	o, _ := s.command(r) // request has looked at it
	o.Env, o.User, o.TTY, o.Size = s.env, s.link.user, s.tty, s.size
	o.Stdin, o.Stdout, o.Stderr = &input{s}, &output{to: s.channel}, &output{to: s.channel.Stderr()}
	o.Resize, o.Signals = s.resize, s.signals
	s.ended = make(chan struct{})
	s.link.run(func() {
		defer close(s.ended)
		st, err := s.link.server.Guest.Exec(ctx, o)
		s.report(st, err)
		_ = s.channel.Close() // its only error is that the client has closed it; it ends the requests
	})
}

// input is read by a goroutine of Exec's.
type input struct{ s *session }

// Read implements io.Reader.
func (i *input) Read(b []byte) (n int, err error) {
	err = io.ErrClosedPipe // unless it is read
	i.s.link.contained(func() { n, err = i.s.channel.Read(b) })
	return n, err
}

// output drops what comes for a client that has gone: the command ends by its signal, and not because nobody reads.
type output struct {
	to   io.Writer
	gone bool
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	if !o.gone {
		if _, err := o.to.Write(b); err != nil {
			o.gone = true
		}
	}
	return len(b), nil
}
