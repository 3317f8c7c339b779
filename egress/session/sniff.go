package session

import (
	"errors"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/hostname"
)

// MaxFirst bounds the client's bytes that a verdict waits for. Those behind it decide nothing.
const MaxFirst = clienthello.MaxBytes + 4<<10 // and the headers of its records

// sniffed is what a client's first bytes are.
type sniffed struct {
	app  egress.App
	name hostname.Name // SNI or Host
	ech  bool
	err  error // TLS or HTTP that can't be read without guessing
}

// apply writes what was read into the flow, at StageName.
func (s sniffed) apply(f *egress.Flow) {
	f.Stage, f.App, f.Name, f.ECH = egress.StageName, s.app, s.name, s.ech
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
	head, err := httphead.Parse(b)
	switch {
	case err == nil:
		return sniffed{app: egress.AppHTTP, name: head.Host}, false
	case errors.Is(err, httphead.ErrIncomplete):
		return sniffed{app: egress.AppHTTP}, true
	case errors.Is(err, httphead.ErrNotHTTP):
		return sniffed{app: egress.AppOpaque}, false
	}
	return sniffed{app: egress.AppHTTP, err: err}, false
}

// errTruncated is a client that stopped in the middle of its first words.
var errTruncated = errors.New("the client stopped before its name was known")

// truncated is what is known of a client that says no more after n bytes that began like app.
func truncated(n int, app egress.App, end Ending) sniffed {
	switch {
	case n == 0 && end == Silent: // a server speaks first
		return sniffed{app: egress.AppOpaque}
	case app == egress.AppUnknown:
		app = egress.AppOpaque
	}
	return sniffed{app: app, err: errTruncated}
}
