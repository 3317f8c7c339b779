package httphead

import (
	"bytes"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Fault is what is wrong with a line of a head. Neither text holds a byte of it.
type Fault struct {
	Code    string // one word, for programs
	Message string // what the request does: "its first line …"
}

// Error implements error.
func (f *Fault) Error() string { return f.Message }

// RequestLine is the first line of a request.
type RequestLine struct {
	Method, Target string
	HTTP10         bool // or HTTP/1.1
}

// Line takes the end off a line that a line feed ended, which b doesn't hold any more.
func Line(b []byte) ([]byte, *Fault) {
	line, ok := bytes.CutSuffix(b, []byte("\r"))
	if !ok {
		return nil, &Fault{"bare_lf", "a line ends in a line feed without a carriage return"}
	}
	if bytes.ContainsAny(line, "\r\n\x00") {
		return nil, &Fault{"control_character", "a line holds a carriage return or NUL"}
	}
	return line, nil
}

// ParseRequestLine takes "METHOD SP target SP HTTP/1.x" and nothing looser. Which forms of a target it takes is for
// the caller to say.
func ParseRequestLine(line []byte) (RequestLine, *Fault) {
	method, rest, ok := strings.Cut(string(line), " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok || !ok2 || !httpguts.ValidHeaderFieldName(method):
		return RequestLine{}, &Fault{"request_line", `its first line is not "METHOD target HTTP/1.1"`}
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return RequestLine{}, &Fault{"request_line", "its first line does not end in HTTP/1.1 or HTTP/1.0"}
	}
	return RequestLine{Method: method, Target: target, HTTP10: version == "HTTP/1.0"}, checkTarget(target)
}

// CheckRequest refuses requests that an inspected connection never carries, whatever the rules: CONNECT would hide what
// follows, the answer to TRACE repeats the request's fields, and a target that is no path names a host of its own.
func CheckRequest(method, target string) *Fault {
	switch {
	case method == http.MethodConnect:
		return &Fault{"connect", "CONNECT inside an inspected connection is refused: it would hide what follows"}
	case strings.EqualFold(method, http.MethodTrace):
		return &Fault{"trace", "TRACE is refused: its answer would repeat the request's headers"}
	case !httpguts.ValidHeaderFieldName(method): // both are tokens (RFC 9110, section 9.1)
		return &Fault{"method", "its method is none"}
	case target != "*" && !strings.HasPrefix(target, "/"):
		return &Fault{"absolute_form", "the request's target does not begin with a slash"}
	}
	return checkTarget(target)
}

// checkTarget refuses a target that not every parser takes to end in the same place.
func checkTarget(target string) *Fault {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return &Fault{"request_target", "its target holds a control character, white space or a fragment"}
		}
	}
	return nil
}

// ParseField takes "Name: value" apart, and nothing looser. The value has no white space around it.
func ParseField(line []byte) (name, value []byte, fault *Fault) {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return nil, nil, &Fault{"folded_line", "a field is folded over two lines"}
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !httpguts.ValidHeaderFieldName(string(name)) {
		return nil, nil, &Fault{"field", `a field is not "Name: value"`}
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, &Fault{"control_character", "a field holds a control character"}
		}
	}
	return name, value, nil
}

// field is one of a whole head, with the line that it was.
type field struct{ name, value, line string }

// parseLines reads a head, each line with its end, without the empty one.
func parseLines(head []byte) (first RequestLine, fields []field, fault *Fault) {
	for i, b := range bytes.Split(bytes.TrimSuffix(head, []byte("\n")), []byte("\n")) {
		line, fault := Line(b)
		if fault != nil {
			return first, nil, fault
		}
		if i == 0 {
			if first, fault = ParseRequestLine(line); fault != nil {
				return first, nil, fault
			}
			continue
		}
		name, value, fault := ParseField(line)
		if fault != nil {
			return first, nil, fault
		}
		fields = append(fields, field{strings.ToLower(string(name)), string(value), string(line)})
	}
	return first, fields, nil
}
