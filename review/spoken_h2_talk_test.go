package review_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2talk is a connection on which the guest speaks HTTP/2, frame by frame, and any frame.
type h2talk struct {
	*talk
	frames  *http2.Framer
	block   bytes.Buffer
	fields  *hpack.Encoder
	answers map[uint32]*h2answer
	gone    *http2.ErrCode // of the gateway's GOAWAY
	pongs   int
}

// h2answer is what came on a stream so far.
type h2answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	reset  *http2.ErrCode
	done   bool
}

// h2 opens a connection to name and begins HTTP/2 with these settings.
func (s *session) h2(name string, settings ...http2.Setting) *h2talk {
	s.t.Helper()
	conn, err := s.handshake(name, nil, "h2")
	if err != nil {
		s.t.Fatalf("TLS with %s: %v", name, err)
	}
	k := &h2talk{talk: s.talk(conn), answers: map[uint32]*h2answer{}}
	k.frames = http2.NewFramer(k, k.r)
	k.frames.AllowIllegalWrites = true
	k.frames.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	k.fields = hpack.NewEncoder(&k.block)
	k.say(http2.ClientPreface)
	k.must(k.frames.WriteSettings(settings...))
	return k
}

func (k *h2talk) must(err error) {
	k.s.t.Helper()
	if err != nil {
		k.s.t.Fatalf("sending a frame: %v", err)
	}
}

// pairs makes fields of names and values in turn.
func pairs(nameValue ...string) []hpack.HeaderField {
	var fields []hpack.HeaderField
	for i := 0; i < len(nameValue); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: nameValue[i], Value: nameValue[i+1]})
	}
	return fields
}

// h2get are the fields of a GET, and more behind them.
func h2get(host, path string, more ...string) []hpack.HeaderField {
	return pairs(append([]string{":method", "GET", ":scheme", "https", ":authority", host, ":path", path}, more...)...)
}

// encode makes a header block.
func (k *h2talk) encode(fields []hpack.HeaderField) []byte {
	k.block.Reset()
	for _, f := range fields {
		k.must(k.fields.WriteField(f))
	}
	return bytes.Clone(k.block.Bytes())
}

// request opens a stream; end says that no body comes.
func (k *h2talk) request(stream uint32, end bool, fields []hpack.HeaderField) {
	k.s.t.Helper()
	k.must(k.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: k.encode(fields), EndStream: end, EndHeaders: true,
	}))
}

// ask sends a request without a body and reads its answer.
func (k *h2talk) ask(stream uint32, fields []hpack.HeaderField) *answer {
	k.s.t.Helper()
	k.request(stream, true, fields)
	return k.answer(stream, "stream "+strconv.Itoa(int(stream)))
}

// answer reads until a stream's answer is whole. One that was reset has the status 0.
func (k *h2talk) answer(stream uint32, what string) *answer {
	k.s.t.Helper()
	for a := k.stream(stream); !a.done; {
		if err := k.read(); err != nil {
			k.s.t.Fatalf("%s: no answer: %v", what, err)
		}
	}
	a := k.answers[stream]
	return k.s.answered(what, a.status, a.header, a.body.String())
}

// ping waits until the gateway has read all that was sent before.
func (k *h2talk) ping() {
	k.s.t.Helper()
	k.must(k.frames.WritePing(false, [8]byte{}))
	for before := k.pongs; k.pongs == before; {
		if err := k.read(); err != nil {
			k.s.t.Fatalf("waiting for a ping's answer: %v", err)
		}
	}
}

// wasReset asserts that the gateway ended a stream, and only that, without an answer.
func (k *h2talk) wasReset(stream uint32, want http2.ErrCode, what string) {
	k.s.t.Helper()
	if a := k.answer(stream, what); a.Status != 0 {
		k.s.t.Errorf("%s: status %d: %s", what, a.Status, a.Body)
	}
	if code := k.answers[stream].reset; code == nil || *code != want {
		k.s.t.Errorf("%s: the stream was reset with %v, want %v", what, code, want)
	}
}

// ended asserts that the gateway ended the connection and said why.
func (k *h2talk) ended(want http2.ErrCode, what string) {
	k.s.t.Helper()
	var err error
	for err == nil {
		err = k.read()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || k.gone == nil || *k.gone != want {
		k.s.t.Errorf("%s: the connection ended with %v and GOAWAY %v, want %v", what, err, k.gone, want)
	}
}

func (k *h2talk) stream(id uint32) *h2answer {
	if k.answers[id] == nil {
		k.answers[id] = &h2answer{header: http.Header{}}
	}
	return k.answers[id]
}

// read takes one frame.
func (k *h2talk) read() error {
	f, err := k.frames.ReadFrame()
	if err != nil {
		return err
	}
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		return k.frames.WriteSettingsAck()
	case *http2.PingFrame:
		if f.IsAck() {
			k.pongs++
			return nil
		}
		return k.frames.WritePing(true, f.Data)
	case *http2.GoAwayFrame:
		k.gone = &f.ErrCode
	case *http2.RSTStreamFrame:
		a := k.stream(id)
		a.reset, a.done = &f.ErrCode, true
	case *http2.MetaHeadersFrame:
		a := k.stream(id)
		if status := f.PseudoValue("status"); status != "" {
			a.status, _ = strconv.Atoi(status)
		}
		for _, field := range f.RegularFields() {
			a.header.Add(field.Name, field.Value)
		}
		a.done = f.StreamEnded()
	case *http2.DataFrame:
		a := k.stream(id)
		_, _ = io.Copy(&a.body, bytes.NewReader(f.Data()))
		a.done = f.StreamEnded()
	}
	return nil
}
