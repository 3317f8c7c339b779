package secretproxy

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// checkHost requires Host or :authority to be the SNI, and a name pinned to the
// destination (invariant 7). It sets ex.host.
func checkHost(ex *exchange, r *http.Request) *refusal {
	wrong := &refusal{
		status: http.StatusMisdirectedRequest, code: egress.ReasonHostMismatch.String(),
		message: "the request's host is not the one that this connection was opened for: open a new connection for it",
	}
	host, port := splitAuthority(r.Host)
	defaultPort := uint16(80)
	if ex.guest.isTLS {
		defaultPort = 443
	}
	dst := ex.guest.dst()
	if port == 0 {
		port = defaultPort
	}
	// A mapped or forwarded port must be named as the guest dialled it; a
	// client that leaves it out means the scheme's own.
	if port != dst.Port() && port != defaultPort {
		return wrong
	}
	name := ex.guest.name
	if name.IsZero() || host != name.String() { // the usual one is not parsed again
		if addr, err := netip.ParseAddr(host); err == nil {
			if len(ex.guest.flow.Pinned) > 0 || addr.Unmap() != dst.Addr().Unmap() {
				return wrong
			}
			r.Host = authority(addr.Unmap().String(), dst.Port(), defaultPort)
			return nil
		}
		parsed, err := hostname.Parse(host)
		if err != nil || ex.guest.isTLS && parsed != name {
			return wrong
		}
		name = parsed
	}
	if !ex.guest.pinned(name) {
		return wrong
	}
	ex.host = name
	r.Host = authority(name.String(), dst.Port(), defaultPort)
	return nil
}

// splitAuthority splits "host", "host:port", "[v6]" and "[v6]:port"; a port
// that is no number makes the host unparsable.
func splitAuthority(s string) (string, uint16) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", 0
	}
	return host, uint16(n)
}

// authority writes a Host header in its normal form.
func authority(host string, port, defaultPort uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == defaultPort {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// dropAliases removes fields with underscores that CGI can't distinguish from fields that are
// judged or removed: both become HTTP_X_HTTP_METHOD_OVERRIDE. nginx and Apache drop them too.
func dropAliases(h http.Header) {
	var buf [64]byte
	for name := range h {
		if strings.IndexByte(name, '_') >= 0 && forbiddenTrailer(string(dashed(&buf, name))) {
			delete(h, name)
		}
	}
}
