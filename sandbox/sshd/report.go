package sshd

import (
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// failed is the exit status of a command that has none: that of ssh itself for its own errors.
const failed = 255

// report tells the client how the command ended. What goes wrong means that it has gone.
func (s *session) report(st agentclient.ExitStatus, err error) {
	name, known := signalNames[st.Signal]
	switch {
	case err != nil:
		s.say(err.Error())
		s.exit(failed)
	case st.StartError != agentclient.Started:
		s.say(st.Message)
		s.exit(st.Code)
	case known:
		if st.OOMKilled {
			s.say("the command was killed because the guest ran out of memory")
		}
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal            string
			Core              bool
			Message, Language string
		}{Signal: name}))
	default:
		s.exit(st.Code)
	}
}

func (s *session) exit(code int) {
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
}

func (s *session) say(text string) {
	end := "\n"
	if s.tty {
		end = "\r\n"
	}
	_, _ = fmt.Fprintf(s.channel.Stderr(), "msb: %s%s", text, end)
}
