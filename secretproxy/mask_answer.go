package secretproxy

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/msb-project/msb/secretproxy/mask"
)

// wholeResponse bounds answers of known length that are masked in one piece, so that the head
// has the new length.
const wholeResponse = 64 << 10

// maskResponse takes values out of an answer's header and arranges for its
// body and trailers to be masked while they are read.
func (p *Proxy) maskResponse(ex *exchange, resp *http.Response) *refusal {
	// A service that refuses a signature repeats what was signed. Granted answers are not
	// searched, so that downloads can resume.
	refused := resp.StatusCode >= http.StatusMultipleChoices && ex.signed()
	ex.masked = ex.masked || p.known.masks() // a reload brought the sandbox's first secret
	if !ex.masked && !refused {
		return nil
	}
	if fault := p.mint(ex, resp); fault != nil {
		return fault
	}
	ex.unsized = true
	if resp.Body == nil || resp.Body == http.NoBody {
		maskHead(p, resp)
		return nil
	}
	if charset(resp.Header) != "" {
		return unmaskable()
	}
	if resp.ContentLength >= 0 && resp.ContentLength <= wholeResponse && (resp.ContentLength == 0 || plain(resp)) {
		return p.maskWhole(ex, resp)
	}
	m := maskHead(p, resp)
	body, err := decoded(resp)
	if err == nil {
		body, err = decodedMessages(resp.Header, body, ex.held)
	}
	if err != nil {
		return unmaskable()
	}
	stream := mask.NewAnswerStream(m.set, m.replace, resp.ContentLength < 0).
		Framed(mask.FramingOf(resp.Header.Get("Content-Type"))).Follow(p.known.needles)
	hold := &maskHold{held: ex.held, stream: stream}
	if !hold.take() || !ex.held.Take(decoderCost(encodings(resp.Header))) {
		return memoryFull()
	}
	resp.Body = &maskedBody{
		proxy: p, resp: resp, body: resp.Body, stream: stream,
		reader: mask.NewReader(&heldSource{body, hold}, stream),
	}
	if encodings(resp.Header) != "" {
		resp.Header.Del("Content-Encoding")
	}
	resp.ContentLength = -1
	return nil
}

// tellsLength names fields that tell an answer's length, or its hash, before it was masked: that of a compressed one
// depends on the value in it (attack: HEAD of a page that repeats a guess beside the value), and a checksum such as
// CRC-32 is as good as some bytes of it (attack: three checksums of one page give 16 bytes away).
func tellsLength(name string) bool {
	var buf [64]byte
	dashed := dashed(&buf, name)
	switch string(dashed) {
	case "content-range", "digest", "content-digest", "repr-digest", "x-goog-hash":
		return true
	}
	return containsAny(dashed, "content-length", "content-md5", "checksum", "crc32", "crc64")
}

func unmaskable() *refusal {
	return &refusal{
		status: http.StatusBadGateway, code: "unmaskable_encoding", cause: "encoding",
		message: "the server answered in an encoding that was not asked for and that can't be searched for secrets",
	}
}

// maskHead masks what goes out before the body, the names of its trailers too, and returns what it is masked with.
func maskHead(p *Proxy, resp *http.Response) *masker {
	m := p.known.newest()
	maskHeader(p, m, resp.Header)
	maskHeader(p, m, resp.Trailer)
	resp.Header.Del("Accept-Ranges")
	return m
}

// maskWhole masks a small answer of known length in one piece. goproxy closes its body when the exchange is over: to
// close it here would wait for the transport, although all of it was read.
func (p *Proxy) maskWhole(ex *exchange, resp *http.Response) *refusal {
	if !ex.held.Take(2 * resp.ContentLength) {
		return memoryFull()
	}
	// One byte more than its length, so that the end is seen and the connection
	// can be used again.
	whole := make([]byte, resp.ContentLength+1)
	n, err := io.ReadFull(resp.Body, whole)
	ended := errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
	if !ended || int64(n) != resp.ContentLength {
		if err == nil || ended {
			err = io.ErrUnexpectedEOF
		}
		return upstreamRefusal(err)
	}
	// The masker is taken only now: a server can send its head, and in the body a value that the sandbox got meanwhile
	// (attack: a long poll that repeats what a later request carried, over a rotation).
	m := maskHead(p, resp)
	out, hits, err := m.set.ReplaceBytes(whole[:n], m.replace)
	if err != nil {
		return upstreamRefusal(err)
	}
	p.counters.masked.Add(uint64(hits))
	resp.Body, resp.ContentLength = newBytesBody(out), int64(len(out))
	return nil
}

// decoded returns the body with its content encodings undone.
func decoded(resp *http.Response) (io.Reader, error) {
	return mask.Decode(resp.Body, encodings(resp.Header))
}

// plain reports whether there is no encoding to undo.
func plain(resp *http.Response) bool {
	coding, framed := messageCoding(resp.Header)
	return !framed && coding == "" && encodings(resp.Header) == ""
}

var unfold = strings.NewReplacer(" ", "", "\t", "")

// blanks are what a field may hold of white space.
const blanks = " \t"

// folded reports whether a value stands in a field that its server folded over lines: net/http puts a blank
// where the fold was. Such a field can't be masked, but left out. The field has its values replaced already.
func (m *masker) folded(field string) bool {
	if m.set.TooShort(len(field)) && m.solid.TooShort(len(field)) || !strings.ContainsAny(field, blanks) {
		return false
	}
	solid := unfold.Replace(field)
	_, hit := m.set.Find(solid)
	if !hit {
		_, hit = m.solid.Find(solid)
	}
	return hit
}

// maskHeader takes values out of the fields of an answer, of early hints or of trailers, and the fields that tell
// what was there before.
func maskHeader(p *Proxy, m *masker, h http.Header) {
	for name, values := range h {
		if tellsLength(name) {
			delete(h, name)
			continue
		}
		// net/http wrote the name in another case, and the masker knows lower.
		if _, hit := m.set.Find(strings.ToLower(name)); hit {
			delete(h, name)
			p.counters.masked.Add(1)
			continue
		}
		for i, v := range values {
			out, hit, err := m.set.Replace(v, m.replace)
			if err != nil || m.folded(out) {
				delete(h, name)
				p.counters.masked.Add(1)
				break
			}
			if hit {
				values[i] = out
				p.counters.masked.Add(1)
			}
		}
	}
}

// maskedBody is an answer's body without values.
type maskedBody struct {
	proxy  *Proxy
	resp   *http.Response
	body   io.Closer
	stream *mask.Stream
	reader io.Reader
	ended  bool
}

// Read implements io.Reader. At the end it masks the trailers, which net/http
// has put into the response by then.
func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		maskHeader(b.proxy, b.proxy.known.newest(), b.resp.Trailer)
		b.proxy.counters.masked.Add(uint64(b.stream.Hits()))
	}
	return n, err
}

// Close implements io.Closer.
func (b *maskedBody) Close() error { return b.body.Close() }
