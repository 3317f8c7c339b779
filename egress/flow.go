package egress

import (
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// Proto is the transport of a flow.
type Proto uint8

// The transports that leave a guest. Everything else ends in the frame guard.
const (
	TCP Proto = iota + 1
	UDP
	ICMP
)

// String returns "tcp", "udp" or "icmp", as rules and the audit log write it.
func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case ICMP:
		return "icmp"
	}
	return "invalid"
}

// App is what the first bytes of a TCP flow are known to be.
type App uint8

// The zero value stands for a flow of which no byte was read.
const (
	AppUnknown App = iota
	// AppTLS is a ClientHello.
	AppTLS
	// AppHTTP is a request line.
	AppHTTP
	// AppOpaque is neither.
	AppOpaque
	// AppSilent is nothing within the time that a peek may take.
	AppSilent
)

// String returns "unknown", "tls", "http", "opaque" or "silent".
func (a App) String() string {
	switch a {
	case AppUnknown:
		return "unknown"
	case AppTLS:
		return "tls"
	case AppHTTP:
		return "http"
	case AppOpaque:
		return "opaque"
	case AppSilent:
		return "silent"
	}
	return "invalid"
}

// Stage is how much of a flow is known. A flow is judged again at each stage it
// goes through; a later stage never widens what an earlier one denied.
type Stage uint8

const (
	// StageConnect knows the addresses and what is pinned to them.
	StageConnect Stage = iota
	// StageName has read the ClientHello or the request's Host: App is set, and
	// Name, unless the client said none.
	StageName
	// StageRequest knows method and path of one request.
	StageRequest
)

// String returns "connect", "name" or "request".
func (s Stage) String() string {
	switch s {
	case StageConnect:
		return "connect"
	case StageName:
		return "name"
	case StageRequest:
		return "request"
	}
	return "invalid"
}

// Flow is what is known of a flow when it is judged. The engine keeps nothing
// of it.
type Flow struct {
	Proto Proto
	// Src is the guest's end, for explanations only. Dst is judged; its port is
	// 0 for ICMP. A v4-mapped Dst is judged as the IPv4 address it carries.
	Src, Dst netip.AddrPort
	// Pinned are the names that dnsguard pinned to Dst, or the one name that
	// [hosts] maps to it.
	Pinned []hostname.Name
	// Mapped says that Dst is an address which the gateway handed out for a
	// line of [hosts]: the operator chose where it leads. Only the gateway's
	// own table may set it, never the fact that Dst lies in 198.18.0.0/15.
	Mapped bool
	// Local says that the host's kernel keeps what is sent to Dst to itself
	// (KernelOwns): Dst is judged as one of the host's own addresses. Whoever
	// has no kernel to ask leaves it out.
	Local bool
	// Name is what the client said: the SNI on TLS, the Host on plain HTTP.
	// The zero Name means that it said none, or none yet. At StageRequest on
	// TLS, Host and SNI are equal, which the caller has checked.
	Name  hostname.Name
	Stage Stage
	App   App
	// ECH says that the ClientHello carries an encrypted one, so that Name is
	// an outer name which proves nothing.
	ECH bool
	// Unclear says that App is AppOpaque only by the letter: a server may find
	// TLS or HTTP in the client's first bytes.
	Unclear bool
	// Method and Path are of StageRequest. Path is as it stood in the request
	// line, before any decoding; a query behind it is ignored.
	Method, Path string
}
