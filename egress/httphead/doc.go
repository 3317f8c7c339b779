// Package httphead reads the heads of HTTP/1 requests, for everyone who does: Parse for a connection that is judged by
// its Host before anything is dialled, ParseProxy for a request to the explicit proxy, and Line, ParseRequestLine and
// ParseField for secretproxy, which follows a connection line by line before net/http parses it.
//
// Whatever could be read in two ways (two Host fields, a bare line feed, a folded line, an absolute-form target beside
// the Host) is an error and so a denied flow or a refused request.
package httphead
