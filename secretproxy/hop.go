package secretproxy

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// cleanHop removes hop-by-hop fields, and fields that would make the upstream use another host
// or path than the one that was judged.
func cleanHop(r *http.Request) {
	h := r.Header
	upgrade := upgradeType(h)
	for _, field := range h["Connection"] {
		for _, name := range strings.Split(field, ",") {
			// "Connection: authorization" would make the next hop drop it.
			h.Del(textproto.TrimString(name))
		}
	}
	trailers := httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate",
			"Te", "Upgrade", "Http2-Settings", "Host",
			"X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Host", "X-Forwarded-Server", "X-Host", "Forwarded":
			return true
		}
		return false
	})
	if trailers {
		h["Te"] = []string{"trailers"} // gRPC servers insist on it
	}
	if upgrade != "" {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http sends its own
	}
}

// upgradeType is the protocol that a request wants to go over to; "" if none,
// or if it's HTTP or TLS (RFC 2817, RFC 9113), which would be a way around
// inspection here.
func upgradeType(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") || len(h["Upgrade"]) != 1 {
		return ""
	}
	protocol := h["Upgrade"][0]
	if slices.ContainsFunc(strings.Split(strings.ToLower(protocol), ","), func(s string) bool {
		s = strings.TrimSpace(s)
		return strings.HasPrefix(s, "h2") || strings.HasPrefix(s, "http") || strings.HasPrefix(s, "tls")
	}) {
		return ""
	}
	return protocol
}

// hopResponse removes what is between the upstream and this proxy only.
func hopResponse(h http.Header) {
	for _, field := range h["Connection"] {
		for _, name := range strings.Split(field, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		switch name {
		// Alt-Svc would send the guest to QUIC or to another host, both of
		// which it would be refused.
		case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Transfer-Encoding", "Upgrade", "Alt-Svc":
			return true
		}
		return false
	})
}
