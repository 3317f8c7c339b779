package gateway

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// narrowConn refuses what may not be fragmented, as the kernel does on a narrow path.
type narrowConn struct {
	*net.UDPConn
	modes *[]int // of each Write
	fail  error
}

// deafSocket takes no more options after left calls.
type deafSocket struct {
	syscall.RawConn
	left int
}

func (d *deafSocket) Control(f func(fd uintptr)) error {
	if d.left--; d.left < 0 {
		return net.ErrClosed
	}
	return d.RawConn.Control(f)
}

func (c narrowConn) Write(b []byte) (int, error) {
	mode := fragmentMode(c.UDPConn)
	*c.modes = append(*c.modes, mode)
	if mode == unix.IP_PMTUDISC_DO {
		return 0, syscall.EMSGSIZE
	}
	return len(b), c.fail
}

func fragmentMode(c *net.UDPConn) (mode int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	if raw.Control(func(fd uintptr) { mode, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER) }) != nil || err != nil {
		return -1
	}
	return mode
}

// TestFragmentingIsPerDatagram: what an earlier report of the path's MTU kept back is sent in fragments, once,
// and then the socket fragments no more, also where that fails.
func TestFragmentingIsPerDatagram(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, fail := range map[string]error{"sent": nil, "not sent": broken} {
		u, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		var modes []int
		p := newUDPPath(u, narrowConn{UDPConn: u, modes: &modes, fail: fail}, false)
		if n, err := p.send(make([]byte, 1000), nil); !errors.Is(err, fail) || n != 1000 {
			t.Errorf("%s: %d, %v; want 1000, %v", name, n, err, fail)
		}
		if len(modes) != 2 || modes[0] != unix.IP_PMTUDISC_DO || modes[1] != unix.IP_PMTUDISC_WANT {
			t.Errorf("%s: it was written under the modes %v", name, modes)
		}
		if got := fragmentMode(u); got != unix.IP_PMTUDISC_DO {
			t.Errorf("%s: afterwards the socket is left in mode %d", name, got)
		}
		// A socket that takes no options any more sends nothing more.
		modes = nil
		p.raw = &deafSocket{RawConn: p.raw, left: 1} // the path's MTU is read
		if _, err := p.send(make([]byte, 1000), nil); !errors.Is(err, net.ErrClosed) || len(modes) != 1 {
			t.Errorf("%s: on a deaf socket: %v, written %d times", name, err, len(modes))
		}
	}
}
