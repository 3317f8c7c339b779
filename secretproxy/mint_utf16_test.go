package secretproxy

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/msb-project/msb/policies"
)

// inUTF16 is text in UTF-16.
func inUTF16(text string, order binary.AppendByteOrder) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, u)
	}
	return string(out)
}

// TestI10_TokensInUTF16AreRefused: no token is found in such an object, whether or not its server says what it is. Other
// answers in UTF-16 pass, and objects of hosts where nothing mints.
func TestI10_TokensInUTF16AreRefused(t *testing.T) {
	t.Parallel()
	const token = "r3al-access-token-0001"
	object := `{"access_token":"` + token + `"}`
	type answer struct{ kind, sent string }
	for _, mints := range []bool{true, false} {
		s := secretIn(t, header("Authorization"))
		if mints {
			s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
		}
		var now answer
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header()["Content-Type"] = []string{now.kind}
			_, _ = io.WriteString(rw, now.sent)
		}, withSecret(s))
		shown := func(a answer) bool {
			now = a
			resp, err := w.client(apiHost, apiAddr, false).Do(request(t, "GET", "https://"+apiHost+"/v2/token", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, _ := io.ReadAll(resp.Body) // a stream whose head went out before is broken off
			return strings.Contains(strings.ReplaceAll(string(got), "\x00", ""), token)
		}
		for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
			for _, kind := range []string{"application/json;charset=utf-16be", "application/json", "application/octet-stream", "text/event-stream", ""} {
				for _, before := range []string{"", "\ufeff", " \n", "\ufeff\t", strings.Repeat(" ", 5000)} {
					if got := shown(answer{kind, inUTF16(before+object, order)}); got == mints {
						t.Errorf("mints %v, %v, %q, behind %.10q: the guest got the token: %v", mints, order, kind, before, got)
					}
				}
				if !shown(answer{kind, inUTF16("hello, I am "+object, order)}) {
					t.Errorf("mints %v, %v, %q: the guest didn't get a text", mints, order, kind)
				}
			}
		}
	}
}

// TestI10_UTF16IsNotAskedFor: servers such as Spring's write JSON in the character set that Accept names.
func TestI10_UTF16IsNotAskedFor(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/json;charset=utf-16be", `text/html, application/json; q=0.5; charset="UTF-16"`} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil, "Accept", accept))
		if got := w.api.bytes(); strings.Contains(strings.ToLower(got), "utf-16") || !strings.Contains(got, "application/json") {
			t.Errorf("the server got %q", got)
		}
	}
}
