package secretproxy

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/msb-project/msb/egress/httphead"
)

// headError is why a request's head was refused. The message holds no bytes of
// the request.
type headError struct {
	code, message string
	status        int // of the answer; 0 is 400
}

func (e *headError) answer() int {
	if e.status == 0 {
		return http.StatusBadRequest
	}
	return e.status
}

// Error implements error.
func (e *headError) Error() string { return "the request was refused unread: " + e.message }

func badHead(code, message string) *headError { return &headError{code: code, message: message} }

func badLine(f *httphead.Fault) *headError { return badHead(f.Code, f.Message) }

// headCheck follows the framing of an HTTP/1 connection (RFC 9112) and refuses
// whatever the specification calls an error that recipients may repair.
type headCheck struct {
	phase checkPhase
	line  []byte // the line so far, without its end
	total int    // bytes of the head so far
	head  headFacts
	left  int64 // bytes of a body or chunk that are still to come
	// held is set behind a request with an Upgrade field, whatever else stands
	// in it: what follows may be another protocol, so that it can't be checked,
	// and no request is read out of it either.
	held bool
}

type checkPhase uint8

const (
	phaseRequestLine checkPhase = iota
	phaseFields
	phaseBody
	phaseChunkSize
	phaseChunkData
	phaseChunkEnd
	phaseTrailers
)

// headFacts is what the fields of a head say about framing.
type headFacts struct {
	hosts, lengths, codings  int
	length                   int64
	http10, chunked, upgrade bool
}

// maxLine bounds the size of chunk lines; heads are bounded by maxHeadBytes.
const maxChunkLine = 256

// inHead reports whether a request's head is being read.
func (h *headCheck) inHead() bool { return h.phase == phaseRequestLine || h.phase == phaseFields }

// betweenRequests reports whether the last request has ended and no byte of another came.
func (h *headCheck) betweenRequests() bool { return h.phase == phaseRequestLine && h.total == 0 }

// feed takes bytes in the order they came. On an error good says how many
// bytes at the start of b belong to requests that were whole before it; once
// held is set, how many belong to HTTP at all.
func (h *headCheck) feed(b []byte) (good int, err error) {
	for i := 0; i < len(b); {
		if h.held {
			return i, nil
		}
		if h.phase == phaseBody || h.phase == phaseChunkData {
			n := min(h.left, int64(len(b)-i))
			h.left -= n
			i += int(n)
			if h.left == 0 {
				h.endOfData()
			}
			good = i
			continue
		}
		end := bytes.IndexByte(b[i:], '\n')
		part := b[i:]
		if end >= 0 {
			part = b[i : i+end]
		}
		if fault := h.addToLine(part, end >= 0); fault != nil {
			return good, fault
		}
		if end < 0 {
			break
		}
		i += end + 1
		if fault := h.endOfLine(); fault != nil {
			return good, fault
		}
		h.line = h.line[:0]
		if h.phase == phaseRequestLine || h.phase == phaseBody {
			good = i
		}
	}
	return len(b), nil
}

func (h *headCheck) endOfData() {
	if h.phase == phaseChunkData {
		h.phase = phaseChunkEnd
		return
	}
	h.endOfRequest()
}

func (h *headCheck) endOfRequest() {
	h.phase, h.total, h.held = phaseRequestLine, 0, h.head.upgrade
}

// addToLine takes a part of a line, ended by its line feed or not.
func (h *headCheck) addToLine(part []byte, ended bool) *headError {
	limit := maxHeadBytes
	if h.phase == phaseChunkSize || h.phase == phaseChunkEnd {
		limit = maxChunkLine
	}
	h.total += len(part)
	if ended {
		h.total++
	}
	if len(h.line)+len(part) > limit || (limit == maxHeadBytes && h.total > limit) {
		return badHead("head_too_large", "its head is larger than 64 KiB, or a chunk's size line than 256 bytes")
	}
	h.line = append(h.line, part...)
	return nil
}

// endOfLine judges h.line, which a line feed ended.
func (h *headCheck) endOfLine() *headError {
	line, fault := httphead.Line(h.line)
	if fault != nil {
		return badLine(fault)
	}
	switch h.phase {
	case phaseRequestLine:
		return h.requestLine(line)
	case phaseFields:
		return h.field(line)
	case phaseTrailers:
		return h.trailer(line)
	case phaseChunkSize:
		return h.chunkSize(line)
	case phaseChunkEnd:
		if len(line) > 0 {
			return badHead("chunk", "a chunk is longer than its size says")
		}
		h.phase, h.total = phaseChunkSize, 0
	case phaseBody, phaseChunkData:
	}
	return nil
}

// requestLine takes the forms of a target that a server takes: a path, and the star of OPTIONS.
func (h *headCheck) requestLine(line []byte) *headError {
	h.head, h.total = headFacts{}, len(line)
	first, fault := httphead.ParseRequestLine(line)
	if fault != nil {
		return badLine(fault)
	}
	h.head.http10 = first.HTTP10
	switch {
	case first.Method == http.MethodConnect || first.Method == http.MethodTrace:
		// Let through to the handler, which refuses these by name.
	case strings.HasPrefix(first.Target, "/"), first.Target == "*" && first.Method == http.MethodOptions:
	default:
		return badHead("absolute_form", "its target does not begin with a slash; only requests to a proxy name the host there")
	}
	h.phase = phaseFields
	return nil
}

// field takes one line of the head.
func (h *headCheck) field(line []byte) *headError {
	if len(line) == 0 {
		return h.endOfHead()
	}
	name, value, fault := httphead.ParseField(line)
	if fault != nil {
		return badLine(fault)
	}
	switch string(bytes.ToLower(name)) {
	case "host":
		h.head.hosts++
		if !httpguts.ValidHostHeader(string(value)) { // as net/http has it, after this check
			return badHead("host", "its Host holds what no host name does")
		}
	case "content-length":
		h.head.lengths++
		length, err := strconv.ParseUint(string(value), 10, 63) // digits and nothing else
		if err != nil || len(value) > 18 {
			return badHead("content_length", "its Content-Length is not a plain decimal number")
		}
		h.head.length = int64(length)
	case "transfer-encoding":
		h.head.codings++
		if !bytes.EqualFold(value, []byte("chunked")) {
			return badHead("transfer_encoding", "its Transfer-Encoding is not exactly \"chunked\"")
		}
		h.head.chunked = true
	case "expect":
		if !bytes.EqualFold(value, []byte("100-continue")) {
			// Otherwise net/http would answer it, and the audit log would miss the request.
			return badHead("expect", "it expects something else than 100-continue")
		}
	case "upgrade":
		h.head.upgrade = true
	}
	return nil
}

func (h *headCheck) endOfHead() *headError {
	f := &h.head
	switch {
	case f.hosts > 1 || f.hosts == 0 && !f.http10:
		return badHead("host", "it has no Host, or more than one")
	case f.lengths+f.codings > 1:
		return badHead("length", "its length is given twice")
	case f.chunked && f.http10:
		return badHead("transfer_encoding", "HTTP/1.0 has no Transfer-Encoding")
	}
	h.total = 0
	switch {
	case f.chunked:
		h.phase = phaseChunkSize
	case f.length > 0:
		h.phase, h.left = phaseBody, f.length
	default:
		h.endOfRequest()
	}
	return nil
}

func (h *headCheck) chunkSize(line []byte) *headError {
	digits, extension, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 {
		return badHead("chunk", "a chunk's size is not a hexadecimal number")
	}
	size, err := strconv.ParseUint(string(digits), 16, 63) // digits and nothing else
	if err != nil {
		return badHead("chunk", "a chunk's size is not a hexadecimal number")
	}
	for _, c := range extension {
		if c < ' ' && c != '\t' || c == 0x7f {
			return badHead("chunk", "a chunk's extension holds a control character")
		}
	}
	if size == 0 {
		h.phase, h.total = phaseTrailers, 0
		return nil
	}
	h.phase, h.left = phaseChunkData, int64(size)
	return nil
}

func (h *headCheck) trailer(line []byte) *headError {
	if len(line) == 0 {
		h.endOfRequest()
		return nil
	}
	if _, _, fault := httphead.ParseField(line); fault != nil {
		return badLine(fault)
	}
	return nil
}
