package session

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/msb-project/msb/egress"
)

// Refusal is how an established connection is ended.
type Refusal struct {
	// status and Body answer a request to the explicit proxy; 0 for any other connection.
	status int
	body   proxyBody
	// app is the protocol of the refusal for any other client; a client whose protocol isn't known is reset.
	app egress.App
}

// proxyBody is the body of an answer that the explicit proxy gives itself; secretproxy's have the same keys.
type proxyBody struct {
	Error   string `json:"error"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
}

// accessDenied is a fatal TLS alert 49 (RFC 8446, section 6.2): what a client shows as "access denied"
// and not as a broken network.
const accessDenied = "\x15\x03\x03\x00\x02\x02\x31"

// httpDeniedBody and httpDenied answer plain HTTP whose head can't be parsed: secretproxy needs one that can.
const httpDeniedBody = `{"error":"denied by the sandbox's policy","reason":"host_mismatch"}` + "\n"

var httpDenied = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: " +
	strconv.Itoa(len(httpDeniedBody)) + "\r\nConnection: close\r\n\r\n" + httpDeniedBody

// Bytes is what is written to the client before the connection ends; empty means that it is reset.
func (r Refusal) Bytes() []byte {
	switch {
	case r.status != 0:
		return r.proxyAnswer()
	case r.app == egress.AppTLS:
		return []byte(accessDenied)
	case r.app == egress.AppHTTP:
		return []byte(httpDenied)
	}
	return nil
}

func (r Refusal) proxyAnswer() []byte {
	body, err := json.Marshal(r.body)
	if err != nil { // a struct of strings always encodes
		body = []byte("{}")
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\nX-Msb-Reason: %s\r\nConnection: close\r\n\r\n%s\n",
		r.status, http.StatusText(r.status), len(body)+1, r.body.Reason, body)
}

// denial is a verdict in the explicit proxy's words.
func denial(v egress.Verdict) Refusal {
	return Refusal{status: http.StatusForbidden, body: proxyBody{"denied", v.Reason.String(), v.Rule, v.Message()}}
}
