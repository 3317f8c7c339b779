package secretproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
)

// smallBody is up to where a body that gets a value is read whole, so that its
// length can be corrected; larger ones go out chunked.
const smallBody = 1 << 20

// maxSwapped bounds what such a body may become: each placeholder of it may
// stand for 8 KiB.
const maxSwapped = 2 * smallBody

// body arranges for the request's body and trailers to be searched while they
// are read, and for values to be put in where secrets list "body".
func (s *swapper) body() {
	r := s.req
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	escape := bodyEscape(r.Header)
	swaps := false
	for _, e := range s.ex.table.secrets {
		for _, place := range e.holder.Policy().In {
			if place.Kind == policies.InBody && s.ex.guest.isTLS && s.ex.mayGo(e) {
				swaps = true
				s.present(e) // before anything is sent, so that a refresh that is refused refuses all
			}
		}
	}
	if s.fault != nil {
		return
	}
	latest := func() (*mask.Set, mask.Replacer) {
		t := s.ex.state.table.Load()
		return t.finder, func(h mask.Hit) ([]byte, error) {
			return s.value(t, &h, policies.Place{Kind: policies.InBody}, escape)
		}
	}
	live := r.ContentLength < 0
	stream := mask.NewStream(nil, nil, live && !swaps).Follow(latest)
	hold := &maskHold{held: s.ex.held, stream: stream}
	if !hold.take() {
		s.fault = memoryFull()
		return
	}
	reader := &searchedBody{body: r.Body, swapper: s, reader: mask.NewReader(&heldSource{r.Body, hold}, stream)}
	r.Body = reader
	if !swaps || live {
		return
	}
	if r.ContentLength > smallBody {
		r.ContentLength = -1
		return
	}
	whole, err := s.ex.held.ReadAll(reader, maxSwapped)
	switch {
	case s.fault != nil:
	case errors.Is(err, memory.ErrFull):
		s.fault = memoryFull()
	case err != nil && !errors.Is(err, memory.ErrTooLong):
		s.fault = &refusal{status: http.StatusBadRequest, code: "body", message: "the request's body ended early"}
	case err != nil:
		s.fault = &refusal{status: http.StatusRequestEntityTooLarge, code: "body", message: "with the values in their places the request's body is larger than 2 MiB: send it chunked"}
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
}

// bodyEscape returns how a value is written in a body of that type.
func bodyEscape(h http.Header) func([]byte) []byte {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil:
	case media == "application/x-www-form-urlencoded":
		return func(v []byte) []byte { return []byte(url.QueryEscape(string(v))) }
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		return jsonEscape
	}
	return nil
}

// jsonEscape writes v as the inside of a JSON string.
func jsonEscape(v []byte) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(v)); err != nil {
		return v
	}
	return bytes.TrimSuffix(out.Bytes()[1:], []byte("\"\n"))
}

// searchedBody is a request's body whose placeholders are replaced or refused.
type searchedBody struct {
	body    io.Closer
	reader  io.Reader
	swapper *swapper
}

// Read implements io.Reader. It reports a violation itself: once the answer has begun, the transport drops the error
// (attack: a server that answers at once, and a guest whose body goes on with placeholders).
func (b *searchedBody) Read(p []byte) (int, error) {
	n, err := b.search(p)
	var violation *errViolation
	if errors.As(err, &violation) {
		b.swapper.proxy.auditViolation(b.swapper.ex, violation.refusal)
		b.swapper.proxy.violated(b.swapper.ex, violation.refusal)
	}
	return n, err
}

func (b *searchedBody) search(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	if errors.Is(err, io.EOF) {
		// Trailers are known now, and go out after this.
		t := b.swapper.ex.state.table.Load()
		for name, values := range b.swapper.req.Trailer {
			b.swapper.forbidIn(t, name, "trailer")
			for _, v := range values {
				b.swapper.forbidIn(t, v, "trailer:"+name)
			}
		}
		if b.swapper.fault != nil {
			return 0, &errViolation{b.swapper.fault}
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *searchedBody) Close() error { return b.body.Close() }
