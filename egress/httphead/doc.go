// Package httphead reads the Host of the first request on a plain HTTP/1 connection, so that egress
// can judge a flow before anything is dialled.
//
// It reads no more than that: secretproxy parses every request, this one included, with net/http and
// judges it anew. Whatever could be read in two ways (two Host headers, a bare line feed, a folded
// line, an absolute-form target beside the Host) is an error and so a denied flow.
package httphead
