// Package echo is the HTTPS service behind `[hosts] "name" = "builtin:echo"`: it tells a client what
// the server at the other end of the gateway was sent, without a socket of the host's and without the
// internet. A newcomer sees with it that a secret's value arrives where it may; tests use it too.
//
// It answers every request with a Reply in JSON. Header values and the first bytes of the body are
// reported as they came; secretproxy masks real values in the response like in any other, which is why
// Reply has the SHA-256 of each header value beside it: the digest shows that the real value arrived.
//
// It protects nothing: whoever can reach it gets back what they sent.
package echo
