package secretproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/memory"
)

// guestJSON is a host that shows the guest's own JSON, and repeats what it was sent.
func guestJSON(t *testing.T, token string) (w *world, mint func(text string), repeat func(sent string) (int, string)) {
	t.Helper()
	s := secretIn(t, header("X-Token"))
	s.Mint = &policies.Mint{Path: "/oauth/token", Fields: []string{"access_token"}}
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/my/file.json":
			_, _ = io.Copy(rw, r.Body)
		case strings.Contains(r.URL.Path, "token"):
			_, _ = fmt.Fprintf(rw, `{"access_token":%q}`, token)
		default:
			_, _ = fmt.Fprintf(rw, `{"X-Token":%q}`, r.Header.Get("X-Token"))
		}
	}, withSecret(s))
	c := w.client(apiHost, apiAddr, true)
	mint = func(text string) {
		body, _ := json.Marshal(map[string]string{"access_token": text})
		if resp, got := do(t, c, request(t, "POST", "https://"+apiHost+"/my/file.json", strings.NewReader(string(body)))); resp.StatusCode != http.StatusOK {
			t.Fatalf("minting %q: status %d: %s", text, resp.StatusCode, got)
		}
	}
	repeat = func(sent string) (int, string) {
		resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/debug", nil, "X-Token", sent))
		return resp.StatusCode, body
	}
	return w, mint, repeat
}

// TestI17_MintedGuessesReadNoValue: a guest has its own JSON shown, and so chooses texts that are masked: those that
// end or begin within a value, or hold it, change nothing of an answer that repeats the value. The same of a token from
// the path of the policy.
func TestI17_MintedGuessesReadNoValue(t *testing.T) {
	t.Parallel()
	const token = "r3al-access-token-0001"
	w, mint, repeat := guestJSON(t, token)
	_, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/oauth/token", nil))
	var minted struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(body), &minted); err != nil || !strings.HasPrefix(minted.Token, "msb_") {
		t.Fatalf("%s: %v", body, err)
	}
	for value, placeholder := range map[string]string{realValue: w.placeholder(), token: minted.Token} {
		_, want := repeat("zzzzzzzz" + placeholder)
		if !strings.Contains(want, "zzzzzzzz"+placeholder) {
			t.Fatalf("%q", want)
		}
		for cut := 8; cut < len(value); cut += 3 { // fewer may begin the placeholder too
			for _, guess := range []string{`ken":"zzzzzzzz` + value[:cut], value[cut:] + `"}`, "zz" + value[:cut], "zz" + value + `"`, value[:max(8, cut)]} {
				mint(guess)
				if status, got := repeat("zzzzzzzz" + placeholder); got != want || status != http.StatusOK {
					t.Errorf("with %q minted: status %d, %s; want %s", guess, status, got, want)
				}
			}
		}
	}
}

// TestI17_AClashOfTokensEndsThem: of a token that came from another path, the server's own can't be told from the
// guest's. The first right guess at one is the last: no answer with a token is passed on any more, right or wrong.
func TestI17_AClashOfTokensEndsThem(t *testing.T) {
	t.Parallel()
	const token = "r3al-access-token-0001"
	w, mint, repeat := guestJSON(t, token)
	_, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/OAUTH/token", nil))
	placeholder := strings.TrimSuffix(strings.TrimPrefix(body, `{"access_token":"`), `"}`)
	mint(`ken":"rX`)
	if status, got := repeat(placeholder); status != http.StatusOK || !strings.Contains(got, placeholder) {
		t.Fatalf("behind a wrong guess: status %d: %s", status, got)
	}
	mint(`ken":"r3`)
	_, first := repeat(placeholder)
	if strings.Contains(first, placeholder) || strings.Contains(first, token) {
		t.Errorf("behind a right guess: %s", first)
	}
	for _, sent := range []string{placeholder, "zzzzzzzz" + placeholder, "yyyyyyyy" + placeholder} {
		if _, got := repeat(sent); got != first {
			t.Errorf("%s later: %s, want %s", sent, got, first)
		}
	}
	if _, got := repeat(w.placeholder()); !strings.Contains(got, w.placeholder()) {
		t.Errorf("the secret of the policy: %s", got)
	}
}

// TestI17_PolicyValuesOutrankTheirMint: a value that a guest had minted, and that the policy has afterwards.
func TestI17_PolicyValuesOutrankTheirMint(t *testing.T) {
	t.Parallel()
	k := newKnown(memory.New(1 << 20))
	const value, guess = "a-value-of-the-policy-later", `see "a-va`
	for _, v := range []string{value, guess} {
		if _, err := k.keepAs(rankAnswer, []byte(v), &policies.Secret{}, "<minted>"); err != nil {
			t.Fatal(err)
		}
	}
	k.newest()
	before := k.held.Size()
	for range 2 {
		if _, err := k.keep([]byte(value), &policies.Secret{}, "<policy>"); err != nil {
			t.Fatal(err)
		}
	}
	set, replace := k.needles()
	if out, _, err := set.Replace(`see "`+value+`"`, replace); out != `see "<policy>"` || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if grown := k.held.Size() - before; grown < needleCost || grown > 2*needleCost {
		t.Errorf("its second set of spellings counts as %d bytes", grown)
	}
}
