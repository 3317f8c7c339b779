package secretproxy

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
)

// TestI17_AnswersToGuessesAreAlike: a guest and a server that work together know two values of the same shape and
// not which one is in force. Whatever guesses the server puts into status line, header, trailer and body, the guest
// gets the same answer under both, and the connection goes on or ends alike. When bytes come is held in package
// mask, on a clock of its own. MSB_ORACLE_PAIRS is the number of pairs.
func TestI17_AnswersToGuessesAreAlike(t *testing.T) {
	t.Parallel()
	pairs, compared, differ := 300, 0, 0
	if n, err := strconv.Atoi(os.Getenv("MSB_ORACLE_PAIRS")); err == nil {
		pairs = n
	}
	const worlds = 5
	for i := range worlds {
		g := newGuessed(t, uint64(i), func(v string) string { return v })
		for seed := range pairs / worlds {
			plan := g.plan(uint64(seed))
			if plan == nil {
				continue // a whole value came about by chance
			}
			compared++
			if first, second := g.ask(t, 0, seed), g.ask(t, 1, seed); first != second {
				if differ++; differ <= 3 {
					t.Errorf("values %q, seed %d: the guest saw\n%s\nand\n%s", g.values, seed, first, second)
				}
			}
		}
	}
	t.Logf("%d pairs, %d differ", compared, differ)
	if compared < pairs/2 || differ > 0 {
		t.Errorf("%d of %d pairs differ", differ, compared)
	}
}

// TestI17_MaskedPartsWouldTell is the twin: a proxy that masked parts of values too would tell which one is in force.
func TestI17_MaskedPartsWouldTell(t *testing.T) {
	t.Parallel()
	g := newGuessed(t, 0, func(v string) string { return v[:len(v)/2] })
	differ := 0
	for seed := range 100 {
		if g.plan(uint64(seed)) != nil && g.ask(t, 0, seed) != g.ask(t, 1, seed) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("no answer differs where halves of values are masked")
	}
}

// guessed is two worlds with a secret of the same shape, and the server of both.
type guessed struct {
	number uint64
	values [2]string
	sets   [2]*mask.Set
	worlds [2]*world
	conns  [2]*tls.Conn
	read   [2]*bufio.Reader
}

// newGuessed has stored put into force for a value.
func newGuessed(t *testing.T, number uint64, stored func(string) string) *guessed {
	t.Helper()
	g := &guessed{number: number}
	g.values[0], g.values[1] = alike(rand.New(rand.NewPCG(number, 17)))
	for i, v := range g.values {
		s := secretIn(t, header("Authorization"))
		s.From = policies.Source{Kind: policies.FromFile, Value: filepath.Join(t.TempDir(), "value")}
		if err := os.WriteFile(s.From.Value, []byte(stored(v)), 0o600); err != nil {
			t.Fatal(err)
		}
		g.sets[i] = mask.Compile([][]byte{[]byte(v)}, mask.Options{})
		g.worlds[i] = newWorld(t, g.serve, withSecret(s))
	}
	return g
}

// alike makes two values of the same length, classes and prefix.
func alike(r *rand.Rand) (a, b string) {
	a, b = "sk-", "sk-"
	for range 12 + r.IntN(40) {
		class := []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"}[r.IntN(3)]
		if r.IntN(8) == 0 {
			same := string("-_/+=%&."[r.IntN(8)])
			a, b = a+same, b+same
			continue
		}
		a, b = a+string(class[r.IntN(len(class))]), b+string(class[r.IntN(len(class))])
	}
	return a, b
}

// answer is what the server says.
type answer struct {
	status  int
	header  [][2]string
	trailer string
	pieces  []string
}

// plan makes an answer of guesses, nil if a whole value is in it.
func (g *guessed) plan(seed uint64) *answer {
	r := rand.New(rand.NewPCG(g.number, seed))
	a := &answer{status: []int{200, 200, 200, 201, 302, 401, 404, 500}[r.IntN(8)]}
	names := []string{"X-Guess", "Set-Cookie", "Location", "Etag", "Link", "Www-Authenticate", "Content-Disposition", "Content-Language", "Server", "X-Other"}
	for range r.IntN(4) {
		name := names[r.IntN(len(names))]
		text := []string{"", "a=", "</x?t=", "https://" + apiHost + "/?q=", `W/"`}[r.IntN(5)] + g.guess(r) + []string{"", `"`, "; path=/", ">; rel=next"}[r.IntN(4)]
		a.header = append(a.header, [2]string{name, strings.Map(func(c rune) rune {
			if c < ' ' || c == 0x7f {
				return '_'
			}
			return c
		}, text)})
	}
	kinds := []string{"text/plain", "application/json", "text/event-stream", "application/x-ndjson", "text/html; charset=utf-8", "application/octet-stream", "application/grpc-web+proto"}
	a.header = append(a.header, [2]string{"Content-Type", kinds[r.IntN(len(kinds))]})
	if r.IntN(5) == 0 {
		a.trailer = g.guess(r)
	}
	if a.status != http.StatusFound || r.IntN(2) == 0 {
		for range r.IntN(5) {
			a.pieces = append(a.pieces, []string{"", "data: ", `{"a":"`, " ", "x"}[r.IntN(5)]+g.guess(r)+[]string{"", "\n", "\n\n", `"}`, strings.Repeat(" z", 3000)}[r.IntN(5)])
		}
	}
	var all strings.Builder
	for _, h := range a.header {
		all.WriteString(h[1] + "\n")
	}
	body := strings.Join(a.pieces, "")
	for _, s := range g.sets {
		for _, text := range []string{all.String(), a.trailer, body} {
			if _, hit := s.Find(text); hit {
				return nil
			}
		}
	}
	return a
}

// guess is a part of one of the values, or one with a wrong character, in some spelling.
func (g *guessed) guess(r *rand.Rand) string {
	value := g.values[r.IntN(2)]
	from := r.IntN(3) * r.IntN(len(value)) / 3
	text := value[from : from+r.IntN(len(value)-from)]
	if r.IntN(3) == 0 {
		wrong := r.IntN(len(value))
		text = value[:wrong] + "~" + value[wrong+1:]
	}
	switch r.IntN(6) {
	case 0:
		return url.QueryEscape(text)
	case 1:
		return base64.StdEncoding.EncodeToString([]byte(text))
	case 2:
		return fmt.Sprintf("%x", text)
	case 3:
		return strings.ToUpper(text)
	}
	return text
}

func (g *guessed) serve(rw http.ResponseWriter, r *http.Request) {
	seed, _ := strconv.ParseUint(r.URL.Query().Get("seed"), 10, 64)
	a := g.plan(seed)
	h := rw.Header()
	h.Set("Date", "Sun, 22 Nov 2026 10:00:00 GMT")
	for _, f := range a.header {
		h.Add(f[0], f[1])
	}
	if a.trailer != "" {
		h.Set("Trailer", "X-Trailer")
	}
	rw.WriteHeader(a.status)
	for i, p := range a.pieces {
		_, _ = io.WriteString(rw, p)
		if i%2 == 0 {
			_ = http.NewResponseController(rw).Flush()
		}
	}
	if a.trailer != "" {
		h.Set("X-Trailer", a.trailer)
	}
}

// ask returns all that the guest sees of an answer while value i is in force, but for when.
func (g *guessed) ask(t *testing.T, i, seed int) string {
	t.Helper()
	if g.conns[i] == nil {
		g.conns[i] = g.worlds[i].tlsConn(apiHost, apiAddr)
		g.read[i] = bufio.NewReader(g.conns[i])
	}
	_ = g.conns[i].SetDeadline(time.Now().Add(60 * time.Second))
	method := []string{"GET", "GET", "GET", "HEAD", "POST"}[seed%5]
	length := ""
	if method == "POST" {
		length = "Content-Length: 0\r\n"
	}
	if _, err := fmt.Fprintf(g.conns[i], "%s /?seed=%d HTTP/1.1\r\nHost: %s\r\nTE: trailers\r\n%s\r\n", method, seed, apiHost, length); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(g.read[i], &http.Request{Method: method})
	if err != nil {
		g.conns[i] = nil
		return "no answer: " + err.Error()
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.Close {
		_ = g.conns[i].Close()
		g.conns[i] = nil
	}
	return fmt.Sprintf("%s %v %v %d %v %v %q %v", resp.Status, resp.Header, resp.TransferEncoding, resp.ContentLength, resp.Trailer, resp.Close, body, err)
}
