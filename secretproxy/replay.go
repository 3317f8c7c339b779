package secretproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// keptHead bounds the memory that a Replay keeps between two requests.
const keptHead = 4 << 10

// Replay finds the requests in the client's bytes of a plain HTTP connection that was captured, with the
// check that stands before net/http in a Proxy. The zero value is at the connection's start.
type Replay struct {
	check headCheck
	head  []byte
}

// Feed takes the next bytes and hands the head of each request, when it has ended, to found, which reports
// whether requests may follow. An error says that a Proxy would refuse the connection here, unread.
func (r *Replay) Feed(b []byte, found func(head []byte) (more bool)) error {
	for len(b) > 0 && !r.check.held {
		piece, inHead := b, r.check.phase == phaseRequestLine || r.check.phase == phaseFields
		if r.check.phase == phaseBody || r.check.phase == phaseChunkData {
			piece = b[:min(int64(len(b)), r.check.left)]
		} else if end := bytes.IndexByte(b, '\n'); end >= 0 {
			piece = b[:end+1]
		}
		b = b[len(piece):]
		if inHead {
			r.head = append(r.head, piece...)
		}
		if _, err := r.check.feed(piece); err != nil {
			r.check.held = true
			return err
		}
		if !inHead || r.check.phase == phaseFields || !bytes.HasSuffix(piece, []byte("\n")) {
			continue
		}
		if !found(r.head) {
			r.check.held = true
		}
		r.head = r.head[:0]
		if cap(r.head) > keptHead {
			r.head = nil
		}
	}
	return nil
}

// Refused reports whether a Proxy has refused the beginning of a head that is held: net/http answers a request
// line that it can't read without waiting for the fields. closed says that the client has closed its side in order:
// then net/http answers whatever it has of a head, unless that is less than it looks at before.
func (r *Replay) Refused(closed bool) bool {
	const least = 4 // bytes
	switch {
	case r.check.held, !closed && !bytes.ContainsRune(r.head, '\n'):
		return false
	case closed:
		return len(r.head) >= least
	}
	_, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.head)))
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// Over reports whether nothing that follows is read as a request: another protocol may begin, the
// connection's last request was there, or it was refused.
func (r *Replay) Over() bool { return r.check.held }

// Size is how many bytes are held of a request that has not ended.
func (r *Replay) Size() int { return cap(r.head) + cap(r.check.line) }

// Replayed is a request out of a capture, judged.
type Replayed struct {
	// Host is what the request is for, zero for a literal address and for no host name.
	Host         hostname.Name
	Method, Path string
	// Overrides are the methods that its headers ask for, separated by commas.
	Overrides string
	Verdict   egress.Verdict
	// Fault is the code of a refusal for another cause than the policy; empty for none.
	Fault string
	// Last says that the connection ends with it.
	Last bool
}

// ReplayHead judges a request by its head, as a Proxy would on the plain HTTP connection f. What secrets a
// request would be given or refused for isn't known.
func ReplayHead(judge Judge, f egress.Flow, head []byte) Replayed {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return Replayed{Fault: egress.ReasonUnreadable.String(), Last: true}
	}
	ex := &exchange{guest: newGuestConn(nil, f, flowOf{}, nil), state: &state{judge: judge}, method: req.Method}
	ex.path, _, _ = strings.Cut(req.RequestURI, "?")
	fault := admit(ex, req)
	out := Replayed{
		Method: req.Method, Path: ex.path, Overrides: ex.overrides, Verdict: ex.verdict, Last: req.Close,
	}
	if out.Host = ex.host; out.Host.IsZero() {
		host, _ := splitAuthority(req.Host)
		if _, err := netip.ParseAddr(host); err != nil {
			out.Host, _ = hostname.Parse(host)
		}
	}
	if fault != nil && ex.verdict.Reason == egress.ReasonNone { // it came to no judge
		out.Fault = fault.code
	}
	return out
}
