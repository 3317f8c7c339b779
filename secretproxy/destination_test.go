package secretproxy

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	neturl "net/url"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

// withHosts is the usual secret for these hosts, in every place that there is.
func withHosts(t *testing.T, hosts ...string) option {
	t.Helper()
	s := secretIn(t, header("Authorization"), query("t"), policies.Place{Kind: policies.InBasic}, policies.Place{Kind: policies.InBody})
	s.Hosts = nil
	for _, h := range hosts {
		host, err := policies.ParseSecretHost(h)
		if err != nil {
			t.Fatal(err)
		}
		s.Hosts = append(s.Hosts, host)
	}
	return withSecret(s)
}

// TestI9_OtherPortNeverGetsTheValue sends a placeholder in every listed place to
// both ports of one name, both of which the judge allows.
func TestI9_OtherPortNeverGetsTheValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hosts []string
		to    netip.AddrPort
		sent  bool
	}{
		{[]string{apiHost}, apiAddr, true},
		{[]string{apiHost + ":443"}, apiAddr, true},
		{[]string{"*.example.com"}, apiAddr, true},
		{[]string{apiHost}, otherAddr, false},
		{[]string{"*.example.com"}, otherAddr, false},
		{[]string{apiHost + ":8443"}, apiAddr, false},
		{[]string{apiHost + ":8443"}, otherAddr, true},
		{[]string{"*.example.com:8443"}, otherAddr, true},
		{[]string{apiHost, apiHost + ":8443"}, otherAddr, true},
		{[]string{apiHost, evilHost + ":8443"}, otherAddr, false},
	} {
		w := newWorld(t, echo, withHosts(t, c.hosts...))
		url := fmt.Sprintf("https://%s:%d/", apiHost, c.to.Port())
		p := w.placeholder()
		for _, place := range []struct {
			r    *http.Request
			want string // what the server gets if the value is sent
		}{
			{request(t, "GET", url, nil, "Authorization", "Bearer "+p), "Bearer " + realValue},
			{request(t, "GET", url, nil, "Authorization", basicAuth("u", p)), basicAuth("u", realValue)},
			{request(t, "GET", url+"?t="+p, nil), "t=" + neturl.QueryEscape(realValue)},
			{request(t, "POST", url, strings.NewReader(p), "Content-Type", "text/plain"), realValue},
			{request(t, "POST", url, io.MultiReader(strings.NewReader(p)), "Content-Type", "text/plain"), realValue},
		} {
			what := fmt.Sprintf("hosts %v, port %d, %s", c.hosts, c.to.Port(), place.want)
			before := len(w.api.bytes())
			resp, body := do(t, w.client(apiHost, c.to, place.r.Method == http.MethodPost), place.r)
			got := w.api.bytes()[before:]
			if strings.Contains(got, place.want) != c.sent || strings.Contains(got, p) {
				t.Errorf("%s: the server got %q", what, got)
			}
			if c.sent && resp.StatusCode != http.StatusOK || !c.sent && (resp.StatusCode != http.StatusForbidden || !strings.Contains(body, `"secret_port"`)) {
				t.Errorf("%s: status %d: %s", what, resp.StatusCode, body)
			}
		}
		if n := len(w.events.of(audit.SecretViolation)); (n == 0) != c.sent {
			t.Errorf("hosts %v, port %d: %d violations", c.hosts, c.to.Port(), n)
		}
	}
}

// TestI9_SignatureGoesToItsPortOnly is the same for signed requests, where the
// signature is what a server could use.
func TestI9_SignatureGoesToItsPortOnly(t *testing.T) {
	t.Parallel()
	w := awsWorld(t, "s3", realKeyID+":"+realSecretKey)
	for _, c := range []struct {
		host string
		to   netip.AddrPort
		code string
	}{{apiHost, otherAddr, "secret_port"}, {evilHost, evilAddr, "secret_host"}} {
		r := guestSigns(t, request(t, "GET", fmt.Sprintf("https://%s:%d/key", c.host, c.to.Port()), nil, sigv4.ContentSHA256Header, sigv4.UnsignedPayload), w, sigv4.UnsignedPayload, "s3", "eu-central-1")
		resp, body := do(t, w.client(c.host, c.to, true), r)
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, c.code) || w.api.bytes()+w.evil.bytes() != "" {
			t.Errorf("%s: status %d: %s; the servers got %q", c.to, resp.StatusCode, body, w.api.bytes()+w.evil.bytes())
		}
	}
}

// TestI9_PlaceholderAsMethodIsAViolation sends it as the method itself, and as
// part and spelling of one.
func TestI9_PlaceholderAsMethodIsAViolation(t *testing.T) {
	t.Parallel()
	for name, spell := range map[string]func(string) string{
		"raw":     func(p string) string { return p },
		"within":  func(p string) string { return "GET-" + p + "-X" },
		"upper":   strings.ToUpper,
		"percent": percentAll,
		"base64":  func(p string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + p)) },
	} {
		for _, http2 := range []bool{false, true} {
			for host, addr := range map[string]netip.AddrPort{apiHost: apiAddr, evilHost: evilAddr} {
				w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
				resp, body := do(t, w.client(host, addr, http2), request(t, spell(w.placeholder()), "https://"+host+"/", nil))
				got := w.api.bytes() + w.evil.bytes()
				if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "secret_violation") || got != "" {
					t.Errorf("%s to %s (http2 %v): status %d: %s; the server got %q", name, host, http2, resp.StatusCode, body, got)
				}
				if n := len(w.events.of(audit.SecretViolation)); n != 1 {
					t.Errorf("%s to %s (http2 %v): %d violations", name, host, http2, n)
				}
			}
		}
	}
}

// TestI8_NoAuditLineHoldsAPlaceholder refuses requests with one in what the log
// tells of a request.
func TestI8_NoAuditLineHoldsAPlaceholder(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		p, c := w.placeholder(), w.client(apiHost, apiAddr, http2)
		for _, r := range []*http.Request{
			request(t, p, "https://"+apiHost+"/", nil),
			request(t, "GET", "https://"+apiHost+"/a/"+p+"/b", nil),
			request(t, "GET", "https://"+apiHost+"/forbidden/"+percentAll(p), nil),
			request(t, "DELETE", "https://"+apiHost+"/"+strings.ToUpper(p), nil),
			request(t, "DELETE", "https://"+apiHost+"/", nil, "X-HTTP-Method-Override", p),
		} {
			if resp, body := do(t, c, r); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s: status %d: %s", r.Method, r.URL.Path, resp.StatusCode, body)
			}
		}
		events := append(w.events.of(audit.HTTPRequest), w.events.of(audit.SecretViolation)...)
		if len(events) < 7 {
			t.Errorf("%d events", len(events))
		}
		for _, e := range events {
			line := strings.ToLower(fmt.Sprintf("%+v", e))
			if strings.Contains(line, strings.ToLower(p)) || strings.Contains(line, percentAll(p)) {
				t.Errorf("the placeholder stands in %s", line)
			}
		}
	}
}
