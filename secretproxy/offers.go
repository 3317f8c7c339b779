package secretproxy

import (
	"net/http"
	"strings"
)

// offered reports whether servers may answer in that coding: those whose decoders hold kilobytes. A server that
// sends another one unasked has it undone all the same.
func offered(coding string) bool {
	switch coding {
	case "identity", "gzip", "x-gzip", "deflate":
		return true
	}
	return false
}

// readable rewrites a request so that its answer can be masked: it asks for no encoding that we can't
// undo, and for no ranges, with which a guest could have a value come in two halves (attack: Range).
func readable(h http.Header) {
	for name := range h {
		if asksUnreadable(name) {
			delete(h, name)
		}
	}
	fields := h["Accept-Encoding"]
	if len(fields) == 0 {
		return
	}
	var kept []string
	for _, field := range fields {
		for _, item := range strings.Split(field, ",") {
			name, _, _ := strings.Cut(item, ";")
			if offered(strings.ToLower(strings.TrimSpace(name))) {
				kept = append(kept, strings.TrimSpace(item))
			}
		}
	}
	if len(kept) == 0 {
		h["Accept-Encoding"] = []string{"identity"}
		return
	}
	h["Accept-Encoding"] = []string{strings.Join(kept, ", ")}
}

// asksUnreadable names fields that ask for an answer which can't be searched: part of it, or compressed
// in a way of which Content-Encoding says nothing (RFC 3229; gRPC over HTTP2; Connect). Servers of the
// CGI kind read underscores as dashes.
func asksUnreadable(name string) bool {
	switch dashed := strings.ToLower(strings.ReplaceAll(name, "_", "-")); dashed {
	case "range", "if-range", "a-im":
		return true
	case "accept-encoding":
		return name != "Accept-Encoding"
	default:
		return strings.Contains(dashed, "accept-encoding") || strings.Contains(dashed, "encoding-request")
	}
}

// harmless are content codings by which nothing is encoded, though servers send them: names of character
// sets and transfer codings, and what S3 keeps of an upload's own framing.
func harmless(coding string) bool {
	switch coding {
	case "", "identity", "none", "utf-8", "utf8", "us-ascii", "binary", "7bit", "8bit", "chunked", "aws-chunked":
		return true
	}
	return false
}

// encodings are those of an answer that have to be undone, of all its Content-Encoding fields: a first one
// that is empty hides no other.
func encodings(h http.Header) string {
	var out []string
	for _, item := range strings.Split(strings.Join(h["Content-Encoding"], ","), ",") {
		name, _, _ := strings.Cut(item, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); !harmless(name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}
