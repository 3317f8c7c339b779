package secretproxy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// readable rewrites a request so that its answer can be masked: it asks for no encoding, and for no ranges, with
// which a guest could have a value come in two halves (attack: Range). The pieces in which a compressed answer
// comes, and when, follow its length before it was masked (attack: a page that repeats a guess beside the value).
//
// A request that writes a range is refused: without the field it would write something else.
func readable(h http.Header) *refusal {
	for name := range h {
		if name == "Content-Range" { // admit has dropped Content_Range
			return &refusal{
				status: http.StatusForbidden, code: "range",
				message: "Content-Range is refused where secrets exist: what is stored could be put together or read in parts; send the whole",
			}
		}
		if asksUnreadable(name) {
			delete(h, name)
		}
	}
	for i, v := range h["Accept"] {
		h["Accept"][i] = withoutCharset(v)
	}
	h["Accept-Encoding"] = []string{"identity"}
	return nil
}

// dashed is a field's name as servers of the CGI kind read it, underscores as dashes, in lower case. Every field of
// every head is looked at: what is no longer than buf is written there.
func dashed(buf *[64]byte, name string) []byte {
	out := append(buf[:0], name...)
	for i, c := range out {
		if c == '_' {
			out[i] = '-'
		} else if 'A' <= c && c <= 'Z' {
			out[i] += 'a' - 'A'
		}
	}
	return out
}

// withoutCharset takes character sets out of an Accept field, but for the usual ones: a server would write a
// value in another as no spelling of it (attack: text/plain;charset=IBM037), or an object as none that tokens are found
// in (attack: application/json;charset=utf-16be).
func withoutCharset(accept string) string {
	if !strings.Contains(accept, ";") {
		return accept
	}
	ranges := strings.Split(accept, ",")
	for i, r := range ranges {
		params := strings.Split(r, ";")
		params = slices.DeleteFunc(params, func(p string) bool {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			return strings.EqualFold(strings.TrimSpace(name), "charset") && (!readableCharset(value) || wideCharset(value))
		})
		ranges[i] = strings.Join(params, ";")
	}
	return strings.Join(ranges, ",")
}

// wideCharset reports whether it is UTF-16, which is masked where a server writes it, but not asked for.
func wideCharset(name string) bool {
	return strings.HasPrefix(strings.ToLower(strings.Trim(name, " \t\"'")), "utf-16")
}

// readableCharset reports whether ASCII is ASCII in that character set, or the masker knows it: of others, such
// as EBCDIC's and UTF-7, it can't read a value.
func readableCharset(name string) bool {
	name = strings.ToLower(strings.Trim(name, " \t\"'"))
	for _, known := range []string{
		"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-", "iso8859-", "iso_8859-", "latin", "windows-125", "cp125", "windows-874", "koi8",
		"gb", "big5", "shift_jis", "shift-jis", "sjis", "euc-", "ks_c", "tis-620", "macintosh", "x-mac", "utf-16", "binary",
	} {
		if strings.HasPrefix(name, known) {
			return true
		}
	}
	return name == ""
}

// charset is a character set that a Content-Type names and that can't be searched, however it's written: in any of
// several fields, or as RFC 2231 does (charset*=us-ascii'en'IBM037).
func charset(h http.Header) string {
	for _, contentType := range h["Content-Type"] {
		for _, p := range strings.Split(contentType, ";")[1:] {
			name, value, _ := strings.Cut(p, "=")
			name, _, extended := strings.Cut(strings.TrimSpace(name), "*")
			if extended {
				value = value[strings.LastIndexByte(value, '\'')+1:]
			}
			if strings.EqualFold(strings.TrimSpace(name), "charset") && !readableCharset(value) {
				return value
			}
		}
	}
	return ""
}

// asksUnreadable names fields that ask for an answer which can't be searched: part of it, or compressed
// in a way of which Content-Encoding says nothing (RFC 3229; gRPC over HTTP2; Connect). Servers of the
// CGI kind read underscores as dashes.
func asksUnreadable(name string) bool {
	var buf [64]byte
	dashed := dashed(&buf, name)
	return string(dashed) == "a-im" || string(dashed) == "accept-charset" || containsAny(dashed, "range", "accept-encoding", "encoding-request")
}

func containsAny(b []byte, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return bytes.Contains(b, []byte(part)) })
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

// encodings are the encodings of an answer that have to be undone, from all its Content-Encoding fields: an empty first
// field must not hide another.
func encodings(h http.Header) string {
	if len(h["Content-Encoding"]) == 0 {
		return ""
	}
	var out []string
	for _, item := range strings.Split(strings.Join(h["Content-Encoding"], ","), ",") {
		name, _, _ := strings.Cut(item, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); !harmless(name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}
