package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// traced makes r note the fields of early hints.
func traced(r *http.Request, hints *string) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		*hints += fmt.Sprint(h)
		return nil
	}}))
}

// TestI10_ValuesInTrailerNamesAreRemoved: names of trailers go out with the head, before the body is read. Without
// a secret they arrive.
func TestI10_ValuesInTrailerNamesAreRemoved(t *testing.T) {
	t.Parallel()
	const value = "aBcDeFgH-iJkLm-0123"
	handler := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", value+", X-Last")
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(rw, "hello")
		}
		_ = http.NewResponseController(rw).Flush()
		rw.Header().Set(value, "1")
		rw.Header().Set("X-Last", "2")
	}
	s := secretIn(t, header("Authorization"))
	if err := os.WriteFile(s.From.Value, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	w, open := newWorld(t, handler, withSecret(s)), newWorld(t, handler)
	for _, upstream2 := range []bool{true, false} {
		if !upstream2 {
			w.api.TLS.NextProtos, open.api.TLS.NextProtos = []string{"http/1.1"}, []string{"http/1.1"}
		}
		for _, http2 := range []bool{false, true} {
			for _, path := range []string{"/body", "/"} {
				told := func(w *world) string {
					resp, err := w.client(apiHost, apiAddr, http2).Do(request(t, "GET", "https://"+apiHost+path, nil))
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					before := fmt.Sprint(resp.Header, resp.Trailer)
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						t.Error(err)
					}
					return strings.ToLower(before + fmt.Sprint(resp.Trailer))
				}
				if got := told(w); strings.Contains(got, "abcdefgh") || !strings.Contains(got, "x-last:[2]") {
					t.Errorf("HTTP/2 server %v, HTTP/2 guest %v, %s: the guest got %s", upstream2, http2, path, got)
				}
				if got := told(open); !strings.Contains(got, "abcdefgh") {
					t.Errorf("HTTP/2 server %v, HTTP/2 guest %v, %s: without a secret the guest got %s", upstream2, http2, path, got)
				}
			}
		}
	}
}

// TestI17_NoHashAnywhere: the guest gets neither a hash nor the length of the server's answer, in its head, early hints or
// trailers; without a secret it does.
func TestI17_NoHashAnywhere(t *testing.T) {
	t.Parallel()
	names := []string{
		"Content-Md5", "X-Ms-Blob-Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Crc64nvme",
		"X-Goog-Hash", "X-Ms-Content-Crc64", "X-Checksum-Sha1", "X-Crc32c", "X-Original-Content-Length",
	}
	set := func(h http.Header) {
		for _, name := range names {
			h.Set(name, "unmasked")
		}
	}
	handler := func(rw http.ResponseWriter, r *http.Request) {
		set(rw.Header())
		rw.WriteHeader(http.StatusEarlyHints)
		if r.URL.Path == "/trailers" {
			clear(rw.Header())
			rw.Header().Set("Trailer", strings.Join(names, ", "))
		}
		_, _ = io.WriteString(rw, "hello")
		set(rw.Header())
	}
	w, open := wantsSecret(t, handler), newWorld(t, handler)
	for _, http2 := range []bool{false, true} {
		for _, path := range []string{"/", "/trailers"} {
			told := func(w *world) (hints, rest string) {
				resp, body := do(t, w.client(apiHost, apiAddr, http2), traced(request(t, "GET", "https://"+apiHost+path, nil), &hints))
				if body != "hello" {
					t.Errorf("%q", body)
				}
				return hints, fmt.Sprint(resp.Header, resp.Trailer)
			}
			if hints, rest := told(w); strings.Contains(hints+rest, "unmasked") {
				t.Errorf("http2 %v, %s: the guest got %s and %s", http2, path, hints, rest)
			}
			if hints, rest := told(open); strings.Count(hints, "unmasked") != len(names) || strings.Count(rest, "unmasked") != len(names) {
				t.Errorf("http2 %v, %s: without a secret the guest got %s and %s", http2, path, hints, rest)
			}
		}
	}
}

// TestI10_SignedRequestsHintsAreMasked: they come before it is known whether the server refuses the signature and
// repeats what was signed. An answer that it grants is not searched.
func TestI10_SignedRequestsHintsAreMasked(t *testing.T) {
	t.Parallel()
	const token = "REALSESSIONTOKENREALSESSION"
	s := secretIn(t)
	s.Kind, s.Services, s.Regions, s.In = policies.SigV4, []string{"s3"}, []string{"us-east-1"}, nil
	if err := os.WriteFile(s.From.Value, []byte("AKIAREALREALREAL:realSecretKeyrealSecretKey:"+token), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "<"+r.Header.Get("X-Amz-Security-Token")+">")
		rw.WriteHeader(http.StatusEarlyHints)
	}, withSecret(s))
	for _, http2 := range []bool{false, true} {
		var hints string
		resp, _ := do(t, w.client(apiHost, apiAddr, http2), traced(request(t, "GET", "https://"+apiHost+"/", nil, "X-Amz-Date", "20260101T000000Z",
			"Authorization", "AWS4-HMAC-SHA256 Credential="+w.placeholder()+"/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("a", 64)), &hints))
		if strings.Contains(hints, token) || !strings.Contains(hints, w.placeholder()) {
			t.Errorf("http2 %v: the hints are %s", http2, hints)
		}
		if got := resp.Header.Get("Link"); resp.StatusCode != http.StatusOK || got != "<"+token+">" {
			t.Errorf("http2 %v: status %d, %q", http2, resp.StatusCode, got)
		}
	}
}
