package session

import (
	"bytes"
	"errors"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
)

// PeekTimeout bounds the wait for a ClientHello or a request's first line. A client that speaks second (SSH, SMTP) on a
// rule that needs a name is denied after it.
const PeekTimeout = 10 * time.Second

// MaxFirst bounds the client's bytes that a verdict waits for. Later bytes don't change the verdict.
const MaxFirst = clienthello.MaxBytes + 4<<10 // and the headers of its records

// sniffed is what a client's first bytes are.
type sniffed struct {
	app  egress.App
	name hostname.Name // SNI or Host
	ech  bool
	// unclear is Flow.Unclear.
	unclear bool
	err     error // TLS or HTTP that can't be read without guessing
}

// apply writes what was read into the flow, at StageName.
func (s sniffed) apply(f *egress.Flow) {
	f.Stage, f.App, f.Name, f.ECH, f.Unclear = egress.StageName, s.app, s.name, s.ech, s.unclear
}

// sniff reads the beginning of what a client said; more asks for a longer one. What comes out doesn't depend
// on how the bytes were cut into pieces.
func sniff(first []byte) (said sniffed, more bool) {
	said, more = sniffPrefix(first[:min(len(first), MaxFirst)])
	if more && len(first) >= MaxFirst {
		return sniffed{app: said.app, err: clienthello.ErrTooLong}, false
	}
	return said, more
}

func sniffPrefix(b []byte) (said sniffed, more bool) {
	if len(b) == 0 {
		return sniffed{}, true
	}
	hello, err := clienthello.Parse(b)
	switch {
	case err == nil:
		return sniffed{app: egress.AppTLS, name: hello.ServerName, ech: hello.ECH}, false
	case errors.Is(err, clienthello.ErrIncomplete):
		return sniffed{app: egress.AppTLS}, true
	case !errors.Is(err, clienthello.ErrNotTLS):
		return sniffed{app: egress.AppTLS, err: err}, false
	}
	name, err := httphead.Parse(b)
	switch {
	case err == nil:
		return sniffed{app: egress.AppHTTP, name: name}, false
	case errors.Is(err, httphead.ErrIncomplete):
		return sniffed{app: egress.AppHTTP}, true
	case errors.Is(err, httphead.ErrNotHTTP):
		return sniffed{app: egress.AppOpaque, unclear: unclear(b)}, false
	}
	return sniffed{app: egress.AppHTTP, err: err}, false
}

// unclear reports whether some lenient server may take bytes for TLS or HTTP that are neither by the standards.
// Servers skip leading line ends and alerts, and accept methods of any letters and length, other white space, and
// SSLv2's hello, whose first bit is set. All text but the greeting of SSH counts as unclear.
func unclear(b []byte) bool {
	const changeCipherSpec, heartbeat = 20, 24 // RFC 8446, section 5.1; RFC 6520, section 3
	switch c := b[0]; {
	case bytes.HasPrefix(b, []byte("SSH-")): // RFC 4253, section 4.2
		return false
	case c >= ' ', c >= '\t' && c <= '\r':
		return true
	default:
		return c >= changeCipherSpec && c <= heartbeat
	}
}

// errTruncated is a client that stopped in the middle of its first words.
var errTruncated = errors.New("the client stopped before its name was known")

// truncated is the result for a client that stopped after n bytes that began like app.
func truncated(n int, app egress.App, end Ending) sniffed {
	switch {
	case n == 0 && end == Silent: // a server speaks first
		return sniffed{app: egress.AppSilent}
	case app == egress.AppUnknown:
		app = egress.AppOpaque
	}
	return sniffed{app: app, err: errTruncated}
}
