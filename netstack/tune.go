package netstack

import (
	"fmt"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	// timeWait: a forwarder has no listener, so a SYN that uses a 4-tuple in
	// TIME_WAIT again is dropped. With gVisor's 60 s, dials to one server stop
	// after about 300; the link neither delays nor repeats segments, so that
	// 200 ms is ample.
	timeWait = 200 * time.Millisecond
	// Buffers: a link in memory has no bandwidth-delay product to speak of;
	// 64 KiB frames need a few dozen in flight. The maximum bounds what a
	// guest that never reads can make us hold for one connection.
	minBuffer  = 4 << 10
	defBuffer  = 512 << 10
	maxSend    = 2 << 20
	maxReceive = 2 << 20
	// synRetries: the guest answers from the other end of a socketpair; a
	// half-open flood holds its slots for 1+2+4+8 s instead of 127 s.
	synRetries = 3
	// lingerTimeout ends FIN_WAIT2 when the guest never sends its FIN.
	lingerTimeout = 30 * time.Second
	// userTimeout ends a connection whose data the guest does not acknowledge,
	// a window held at zero for ever included.
	userTimeout = 2 * time.Minute
	// keepalive finds guests that went away without FIN or RST.
	keepaliveIdle     = 2 * time.Minute
	keepaliveInterval = 30 * time.Second
	keepaliveCount    = 4
)

// tuneStack sets the protocol options.
func tuneStack(s *stack.Stack) error {
	timeWaitOpt := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	lingerOpt := tcpip.TCPLingerTimeoutOption(lingerTimeout)
	retriesOpt := tcpip.TCPSynRetriesOption(synRetries)
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	recv := tcpip.TCPReceiveBufferSizeRangeOption{Min: minBuffer, Default: defBuffer, Max: maxReceive}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: minBuffer, Default: defBuffer, Max: maxSend}
	for _, opt := range []tcpip.SettableTransportProtocolOption{
		&timeWaitOpt, &lingerOpt, &retriesOpt, &sack, &moderate, &recv, &send,
	} {
		if terr := s.SetTransportProtocolOption(tcp.ProtocolNumber, opt); terr != nil {
			return fmt.Errorf("netstack: TCP option %T: %s", opt, terr)
		}
	}
	return nil
}

// tuneEndpoint sets what is set for each connection.
func tuneEndpoint(ep tcpip.Endpoint) {
	idle := tcpip.KeepaliveIdleOption(keepaliveIdle)
	interval := tcpip.KeepaliveIntervalOption(keepaliveInterval)
	user := tcpip.TCPUserTimeoutOption(userTimeout)
	_ = ep.SetSockOpt(&idle)
	_ = ep.SetSockOpt(&interval)
	_ = ep.SetSockOpt(&user)
	_ = ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepaliveCount)
	ep.SocketOptions().SetKeepAlive(true)
	ep.SocketOptions().SetDelayOption(false) // the relay's writes are large already
}
