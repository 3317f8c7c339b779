package secretproxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
)

// TestI8_ValuesCantBeGuessedByPrefix: an allowed server that the guest agrees with sends
// right and wrong beginnings of a value and waits. The guest sees as much of the one as of the other.
func TestI8_ValuesCantBeGuessedByPrefix(t *testing.T) {
	t.Parallel()
	saw := func(guess string) string {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "data "+r.URL.Query().Get("g"))
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		}, withSecret(secretIn(t, header("Authorization"))))
		resp, err := w.client(evilHost, evilAddr, true).Do(request(t, "GET", "https://"+evilHost+"/?g="+url.QueryEscape(guess), nil))
		if err != nil {
			t.Fatal(err)
		}
		// What comes within a moment: less than the time that a silent server has.
		soon := time.AfterFunc(500*time.Millisecond, func() { _ = resp.Body.Close() })
		defer soon.Stop()
		got, _ := io.ReadAll(resp.Body)
		return string(got)
	}
	for _, n := range []int{1, 4, 6, 12, len(realValue) - 1} {
		const tries = 4 // a machine that stalls for a second changes what comes when; a leak shows each time
		for try := 1; ; try++ {
			right, wrong := saw(realValue[:n]), strings.Replace(saw(realValue[:n-1]+"!"), "!", realValue[n-1:n], 1)
			if right == wrong && strings.HasPrefix(right, "data ") {
				break
			}
			if try == tries {
				t.Errorf("%d characters: of the right ones the guest saw %q, of wrong ones %q", n, right, wrong)
				break
			}
		}
	}
}

// TestI8_ARefusedSignatureTellsNoCredentials: services repeat what was signed when they refuse it.
func TestI8_ARefusedSignatureTellsNoCredentials(t *testing.T) {
	t.Parallel()
	const key, token = "AKIAREALREALREAL", "REALSESSIONTOKENREALSESSION"
	s := secretIn(t)
	s.Kind, s.Services, s.Regions, s.In = policies.SigV4, []string{"s3"}, []string{"us-east-1"}, nil
	if err := os.WriteFile(s.From.Value, fmt.Appendf(nil, `{"AccessKeyId":%q,"SecretAccessKey":"realSecretKeyrealSecretKey","SessionToken":%q}`, key, token), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Signed", r.Header.Get("X-Amz-Security-Token"))
		rw.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(rw, "<Error><Code>SignatureDoesNotMatch</Code><CanonicalRequest>%s %s</CanonicalRequest></Error>",
			r.Header.Get("X-Amz-Security-Token"), r.Header.Get("Authorization"))
	}, withSecret(s))
	p := w.placeholder()
	resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "X-Amz-Date", "20260101T000000Z",
		"Authorization", "AWS4-HMAC-SHA256 Credential="+p+"/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("a", 64)))
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "SignatureDoesNotMatch") || !strings.Contains(body, p) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	for _, real := range []string{key, token} {
		if all := body + fmt.Sprint(resp.Header); strings.Contains(all, real) {
			t.Errorf("the guest gets %s: %s", real, all)
		}
	}
}
