package sshd

import (
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// signalNames are the signals that SSH knows (RFC 4254, section 6.10), by Linux's numbers.
var signalNames = map[agentclient.Signal]string{
	6: "ABRT", 14: "ALRM", 8: "FPE", 1: "HUP", 4: "ILL", 2: "INT", 9: "KILL", 13: "PIPE", 3: "QUIT", 11: "SEGV", 15: "TERM", 10: "USR1", 12: "USR2",
}

func (s *session) signalNamed(payload []byte) bool {
	var m struct{ Name string }
	if ssh.Unmarshal(payload, &m) != nil {
		return false
	}
	for number, name := range signalNames {
		if name == m.Name {
			s.signal(number)
			return true
		}
	}
	return false
}

// signal drops a signal for which the guest has no room.
func (s *session) signal(n agentclient.Signal) {
	select {
	case s.signals <- n:
	default:
	}
}

// setVariable takes a variable of the terminal's and the language's. A variable of any other name could stand in the
// place of a placeholder, or lead the guest's programs elsewhere (LD_PRELOAD).
func (s *session) setVariable(payload []byte) bool {
	var m struct{ Name, Value string }
	if ssh.Unmarshal(payload, &m) != nil || !passedOn(m.Name) || strings.ContainsRune(m.Name+m.Value, 0) {
		return false
	}
	if len(s.env) == maxVariables || len(m.Name)+1+len(m.Value) > maxVariable {
		return false
	}
	s.env = append(s.env, m.Name+"="+m.Value)
	return true
}

func passedOn(name string) bool {
	switch name {
	case "TERM", "COLORTERM", "LANG", "LANGUAGE":
		return true
	}
	category, ok := strings.CutPrefix(name, "LC_")
	return ok && category != "" && strings.Trim(category, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}

// openTerminal leaves the modes of the client's terminal out: the guest's begins with Linux's.
func (s *session) openTerminal(payload []byte) bool {
	var m struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if ssh.Unmarshal(payload, &m) != nil || s.tty || len(m.Term) > maxVariable || strings.ContainsRune(m.Term, 0) {
		return false
	}
	if m.Term != "" {
		s.env = append(s.env, "TERM="+m.Term)
	}
	s.tty, s.size = true, sizeOf(m.Rows, m.Cols)
	return true
}

// changeSize keeps the last of several sizes that the guest has not taken.
func (s *session) changeSize(payload []byte) bool {
	var m struct{ Cols, Rows, Width, Height uint32 }
	if ssh.Unmarshal(payload, &m) != nil {
		return false
	}
	select {
	case <-s.resize:
	default:
	}
	s.resize <- sizeOf(m.Rows, m.Cols) // has room: nobody else fills it
	return true
}

func sizeOf(rows, cols uint32) agentclient.Size {
	const most = 1<<16 - 1
	return agentclient.Size{Rows: uint16(min(rows, most)), Cols: uint16(min(cols, most))}
}
