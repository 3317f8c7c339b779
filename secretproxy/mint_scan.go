package secretproxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
)

const (
	// maxTokenAnswer bounds what is read of an answer to find tokens; token
	// endpoints answer with a few KiB (RFC 6749, section 5.1).
	maxTokenAnswer = 1 << 20
	// maxTokenRaw bounds it before its encodings are undone: gzip can go on for
	// ever without a byte of content.
	maxTokenRaw = 2 * maxTokenAnswer
	// keptCost is how much of the budget each kept byte takes: for a buffer that doubles, the decoder's own buffer, and a
	// trial of the masking.
	keptCost = 4
	// maxTokenDepth bounds the nesting of such an answer, each level of which
	// takes memory of the decoder.
	maxTokenDepth = 1000
)

var (
	errTokenAnswer = errors.New("not one JSON object of at most 1 MiB")
	// errTokenDepth is refused at every path: a guest can make a server repeat deep nesting before the tokens.
	errTokenDepth = errors.New("an object that is nested too deeply")
	byteOrderMark = []byte("\xef\xbb\xbf")
)

// tokenScan is what was found in an answer.
type tokenScan struct {
	// texts are the values of fields that were asked for, in order: a name may
	// stand there twice, and clients differ in which one they take.
	texts []tokenText
	// odd says that a field holds something else than a text.
	odd bool
	// err is why the answer is not one JSON object, as far as it was read.
	err error
}

// tokenText is a field with a text that is not empty.
type tokenText struct{ field, text string }

// scanTokens reads the first JSON object of r and no further, unless whole is
// set: then anything but white space behind it is an error. wanted is asked with
// names after their escapes are undone ("access\u005ftoken").
func scanTokens(r io.Reader, whole bool, wanted func(name string) bool) (out tokenScan) {
	source := bufio.NewReader(io.LimitReader(r, maxTokenAnswer))
	if mark, _ := source.Peek(1); len(mark) == 1 && mark[0] == byteOrderMark[0] {
		// Go's decoder refuses it, some clients skip it.
		if mark, _ = source.Peek(len(byteOrderMark)); bytes.Equal(mark, byteOrderMark) {
			_, _ = source.Discard(len(byteOrderMark))
			out.err = errTokenAnswer
		}
	}
	if !beginsObject(source) {
		out.err = errTokenAnswer
		return out
	}
	s := &tokenScanner{dec: json.NewDecoder(source), wanted: wanted, out: &out}
	s.dec.UseNumber()
	err := s.object()
	if err == nil && whole {
		if _, err = s.dec.Token(); err == nil {
			err = errTokenAnswer
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		out.err = err
	}
	return out
}

// beginsObject skips white space. It waits for no more than the first byte behind it: what is no object may be a
// stream that somebody reads as it comes.
func beginsObject(source *bufio.Reader) bool {
	for {
		next, err := source.Peek(1)
		if err != nil || strings.IndexByte(" \t\r\n", next[0]) < 0 {
			return err == nil && next[0] == '{'
		}
		_, _ = source.Discard(1)
	}
}

type tokenScanner struct {
	dec    *json.Decoder
	wanted func(string) bool
	out    *tokenScan
}

// object reads the object that must come next.
func (s *tokenScanner) object() error {
	if t, err := s.dec.Token(); err != nil {
		return err
	} else if t != json.Delim('{') {
		return errTokenAnswer
	}
	for s.dec.More() {
		t, err := s.dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if t, err = s.dec.Token(); err != nil {
			return err
		}
		text, isText := t.(string)
		switch {
		case !s.wanted(name) || t == nil || isText && text == "":
		case isText:
			s.out.texts = append(s.out.texts, tokenText{name, text})
		default:
			s.out.odd = true
		}
		if _, nested := t.(json.Delim); nested {
			if err := s.skip(); err != nil {
				return err
			}
		}
	}
	_, err := s.dec.Token()
	return err
}

// skip reads to the end of the array or object that has begun.
func (s *tokenScanner) skip() error {
	for depth := 1; depth > 0; {
		t, err := s.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxTokenDepth {
				return errTokenDepth
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// tokenReader reads an answer without its encodings and keeps what it read, so
// that the answer can be read again from its beginning.
type tokenReader struct {
	resp *http.Response
	held *memory.Hold
	kept bytes.Buffer
	err  error // of the server, but for the end, and of the budget
}

// Read implements io.Reader.
func (r *tokenReader) Read(p []byte) (int, error) {
	n, err := r.resp.Body.Read(p)
	if !r.held.Take(keptCost * int64(n)) {
		r.err = memory.ErrFull
		return 0, memory.ErrFull
	}
	r.kept.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// open returns the answer's content.
func (r *tokenReader) open() (io.Reader, error) {
	return mask.Decode(io.LimitReader(r, maxTokenRaw), encodings(r.resp.Header))
}

// again returns the content that was read.
func (r *tokenReader) again() ([]byte, error) {
	content, err := mask.Decode(bytes.NewReader(r.kept.Bytes()), encodings(r.resp.Header))
	if err != nil {
		return nil, err
	}
	data, _ := io.ReadAll(io.LimitReader(content, maxTokenAnswer)) // it may end early
	return data, nil
}

// rewind puts what was read back in front of the body.
func (r *tokenReader) rewind() {
	r.resp.Body = &rewound{Reader: io.MultiReader(&r.kept, r.resp.Body), Closer: r.resp.Body}
}

type rewound struct {
	io.Reader
	io.Closer
}

// mintLate returns a body from which tokens are made secrets when it is read, after the head of its answer.
func (p *Proxy) mintLate(ex *exchange, resp *http.Response, parents []*entry) io.ReadCloser {
	answer := &http.Response{Body: resp.Body, Header: http.Header{"Content-Encoding": resp.Header["Content-Encoding"]}}
	return &lateTokens{Closer: resp.Body, look: func() (io.Reader, error) {
		if fault := p.mintFrom(ex, answer, parents, false); fault != nil {
			return nil, &errViolation{fault}
		}
		return answer.Body, nil
	}}
}

// lateTokens is a body that is looked at when its first bytes have come.
type lateTokens struct {
	io.Closer
	look func() (io.Reader, error)
	body io.Reader // nil until then
	err  error
}

// Read implements io.Reader.
func (l *lateTokens) Read(p []byte) (int, error) {
	if l.body == nil && l.err == nil {
		l.body, l.err = l.look()
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.body.Read(p)
}

// waits reports whether the head of an answer must be sent before its first bytes: it is a
// stream whose type holds no JSON object, and a client may need the head to continue.
func waits(resp *http.Response) bool {
	if resp.ContentLength >= 0 {
		return false
	}
	media, _, _ := strings.Cut(strings.ToLower(resp.Header.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	switch {
	case media == "", strings.Contains(media, "json"), strings.Contains(media, "javascript"):
		return false
	}
	return media == "text/event-stream" || !strings.HasPrefix(media, "text/")
}
