package sshd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// firstX11Port is where displays begin: that of display N is firstX11Port + N.
const firstX11Port = 6000

// x11 is what a session asks for with ssh -X.
type x11 struct {
	Single           bool
	Protocol, Cookie string
	Screen           uint32
}

// openDisplay makes a display of the guest's that is the client's, for one session, and gives its user the cookie. One that
// is for a single connection is refused: OpenSSH asks for none.
func (s *session) openDisplay(ctx context.Context, payload []byte) bool {
	var m x11
	if ssh.Unmarshal(payload, &m) != nil || m.Single || s.display || !plainWord(m.Protocol) || !plainWord(m.Cookie) {
		return false
	}
	l, err := s.link.server.Guest.Listen(ctx, agentclient.ListenOptions{Back: agentclient.BackX11, At: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		s.link.warn("X11 forwarding is refused: %v", err)
		return false
	}
	_, port := l.Where()
	if port < firstX11Port {
		_ = l.Close()
		return false
	}
	number := port - firstX11Port
	if err := s.giveCookie(ctx, number, m); err != nil {
		_ = l.Close()
		s.link.warn("X11 forwarding is refused: %v", err)
		return false
	}
	s.display = true
	s.env = append(s.env, fmt.Sprintf("DISPLAY=localhost:%d.%d", number, m.Screen))
	s.link.back.serve(ctx, l, "x11", func(from netip.AddrPort) []byte {
		return ssh.Marshal(struct {
			Origin string
			Port   uint32
		}{origin(from), uint32(from.Port())})
	})
	return true
}

// giveCookie has the guest's xauth take the cookie, which the client made up for this session, from standard input: other
// users see the arguments of a command.
func (s *session) giveCookie(ctx context.Context, number uint16, m x11) error {
	// The guest keeps the Timeout, and whatever it runs for xauth may write without end: it is dropped.
	ctx, cancel := context.WithTimeout(ctx, 2*xauthWait)
	defer cancel()
	status, err := s.link.server.Guest.Exec(ctx, agentclient.ExecOptions{
		Argv: []string{"xauth", "-q", "-"}, User: s.link.user, Timeout: xauthWait,
		Stdin: strings.NewReader(fmt.Sprintf("add unix:%d.%d %s %s\n", number, m.Screen, m.Protocol, m.Cookie)),
	})
	switch {
	case err != nil:
		return err
	case status.StartError != agentclient.Started:
		return errors.New("it needs xauth in the image")
	case status.Code != 0 || status.Signal != 0:
		return fmt.Errorf("xauth failed in the guest: exit code %d", status.Code)
	}
	return nil
}

// plainWord reports whether xauth reads s as one word.
func plainWord(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"
	return s != "" && len(s) <= maxVariable && strings.Trim(s, letters) == ""
}
