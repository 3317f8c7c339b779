package review_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

const requestPolicy = `
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
ports = [443]
protocol = "https"
methods = ["GET"]
paths = ["/repos/**"]

[[egress.allow]]
name = "clear"
hosts = ["plain.example"]
ports = [80]
protocol = "http"
paths = ["/open/**"]

[secrets.TOKEN]
from = "env:MSB_TEST_TOKEN"
hosts = ["api.example.com"]
in = ["header:Authorization"]
`

// recordRequests captures a guest that makes requests over kept connections, of which the policy allows some.
func recordRequests(t *testing.T) (path string) {
	t.Helper()
	t.Setenv("MSB_TEST_TOKEN", secretValue)
	path = filepath.Join(t.TempDir(), "requests.pcapng")
	w, err := capture.Create(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := gateway.NewCaptureTap()
	c.Start(w)
	world := gatewaytest.StartWith(t, gatewaytest.Policy(t, requestPolicy), func(cfg *gateway.Config) { cfg.Capture = c })
	world.Record("api.example.com. 60 IN A 93.184.215.14", "plain.example. 60 IN A 93.184.215.20")
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	world.ServeHTTPS("93.184.215.14:443", world.CA.Certificate("api.example.com"), ok)
	world.ServeHTTP("93.184.215.20:80", ok)
	client := world.Client()
	ask := func(method, url string, want int, header ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s %s: %d, want %d", method, url, res.StatusCode, want)
		}
	}
	const api, plain = "https://api.example.com", "http://plain.example"
	ask("GET", api+"/repos/a", 200)
	ask("POST", api+"/repos/a", 403)
	ask("GET", api+"/users/b?token=not-told", 403)
	ask("GET", api+"/repos/c", 403, "X-Note", world.Gateway.Placeholders()["TOKEN"]) // no place for it
	ask("GET", api+"/repos/d", 200, "X-HTTP-Method-Override", "GET")
	ask("POST", plain+"/open/3", 200, "X-HTTP-Method-Override", "DELETE")
	ask("GET", plain+"/open/1", 200)
	ask("GET", plain+"/shut/2", 403)
	world.Audit.Wait(t, audit.HTTPRequest, 8)
	if err := c.Start(nil).Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// requestLines are the requests of a report, "GET https://host/path recorded verdict against".
func requestLines(r *review.Report) []string {
	var all []string
	for _, q := range r.Requests {
		line := fmt.Sprintf("%s %s://%s%s", q.Method, q.Scheme, q.Host, q.Path)
		for _, v := range []*review.Verdict{q.Recorded, &q.Verdict, q.Against} {
			if v != nil {
				line += " " + v.Action
			}
		}
		all = append(all, line)
	}
	return all
}

// TestI9_RequestsInsideTLSAreReviewed: what the recording gateway decided about each request, on kept
// connections and inside TLS too, is judged again by another policy, counted, and shown.
func TestI9_RequestsInsideTLSAreReviewed(t *testing.T) {
	path := recordRequests(t)
	run := func(o review.Options) *review.Report {
		t.Helper()
		o.Captures = []string{path}
		r, err := review.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	wider := strings.Replace(requestPolicy, `methods = ["GET"]`, "", 1)
	wider = strings.Replace(wider, `paths = ["/open/**"]`, "", 1)
	same, open := gatewaytest.Policy(t, requestPolicy), gatewaytest.Policy(t, wider)
	for _, tt := range []struct {
		name   string
		o      review.Options
		want   []string
		counts map[review.Condition]int
	}{
		{
			"the same policy", review.Options{Policy: same},
			[]string{
				"GET https://api.example.com/repos/a allow allow", "POST https://api.example.com/repos/a deny deny",
				"GET https://api.example.com/users/b deny deny", "GET https://api.example.com/repos/c deny deny",
				"GET https://api.example.com/repos/d allow allow",
				"POST http://plain.example/open/3 allow allow", "GET http://plain.example/open/1 allow allow", "GET http://plain.example/shut/2 deny deny",
			},
			map[review.Condition]int{review.IsChanged: 0, review.Denied: 4},
		},
		{
			"one without methods and paths", review.Options{Policy: open},
			[]string{
				"GET https://api.example.com/repos/a allow allow", "POST https://api.example.com/repos/a deny allow",
				"GET https://api.example.com/users/b deny deny", "GET https://api.example.com/repos/c deny deny",
				"GET https://api.example.com/repos/d allow allow",
				"POST http://plain.example/open/3 allow allow", "GET http://plain.example/open/1 allow allow", "GET http://plain.example/shut/2 deny allow",
			},
			map[review.Condition]int{review.Loosened: 2, review.Tightened: 0, review.IsChanged: 2, review.Denied: 2},
		},
		{
			"both", review.Options{Policy: same, Against: open},
			[]string{
				"GET https://api.example.com/repos/a allow allow allow", "POST https://api.example.com/repos/a deny deny allow",
				"GET https://api.example.com/users/b deny deny deny", "GET https://api.example.com/repos/c deny deny deny",
				"GET https://api.example.com/repos/d allow allow allow",
				"POST http://plain.example/open/3 allow allow allow", "GET http://plain.example/open/1 allow allow allow", "GET http://plain.example/shut/2 deny deny allow",
			},
			map[review.Condition]int{review.Loosened: 0, review.Tightened: 2},
		},
		{
			"one that shuts the hosts", review.Options{Policy: gatewaytest.Policy(t, "")},
			[]string{
				"GET https://api.example.com/repos/a allow deny", "POST https://api.example.com/repos/a deny deny",
				"GET https://api.example.com/users/b deny deny", "GET https://api.example.com/repos/c deny deny",
				"GET https://api.example.com/repos/d allow deny",
				"POST http://plain.example/open/3 allow deny", "GET http://plain.example/open/1 allow deny", "GET http://plain.example/shut/2 deny deny",
			},
			map[review.Condition]int{review.Tightened: 4 + 4}, // the names and their flows as well
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := run(tt.o)
			if got := requestLines(r); !slices.Equal(got, tt.want) {
				t.Errorf("requests:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			for c, want := range tt.counts {
				if got := r.Count(c); got != want {
					t.Errorf("%s: %d, want %d: %q", c, got, want, r.Rows(false))
				}
			}
		})
	}
	// What a header makes of a method is judged too, as the gateway does.
	posts := gatewaytest.Policy(t, strings.Replace(requestPolicy, `paths = ["/open/**"]`, `methods = ["GET", "POST"]`, 1))
	if got := requestLines(run(review.Options{Policy: posts})); !slices.Contains(got, "POST http://plain.example/open/3 allow deny") {
		t.Errorf("DELETE in a header of a POST, where neither was allowed:\n%s", strings.Join(got, "\n"))
	}
	var table strings.Builder
	if err := run(review.Options{Policy: open}).WriteTable(&table, true); err != nil {
		t.Fatal(err)
	}
	if s := table.String(); strings.Count(s, "\n") != 3 || !strings.Contains(s, "/shut/2") || !strings.Contains(s, "POST ") {
		t.Errorf("what differs:\n%s", s)
	}
}

// TestLearningKeepsMethodsAndPaths: from the requests where they are in the capture, else from the policy
// that it was judged by; a secret's host must not become wider by being watched.
func TestLearningKeepsMethodsAndPaths(t *testing.T) {
	base := gatewaytest.Policy(t, requestPolicy)
	learn := func(path string) (string, *policies.Policy) {
		t.Helper()
		r, err := review.Run(t.Context(), review.Options{Captures: []string{path}, Policy: base, Learn: true})
		if err != nil {
			t.Fatal(err)
		}
		p, err := policies.Parse("learned.toml", r.Learned(), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Learned())
		}
		return string(r.Learned()), p
	}
	path := recordRequests(t)
	text, p := learn(path)
	for _, r := range p.Egress.Allow {
		for _, path := range r.Paths {
			if !slices.Contains([]string{"/repos/a", "/repos/d", "/users/b", "/open/1", "/open/3", "/shut/2"}, path) {
				t.Errorf("rule %q has the path %s, which nobody asked for or which no rule opens\n%s", r.Name, path, text)
			}
		}
		if len(r.Paths) != 3 {
			t.Errorf("rule %q has the paths %q\n%s", r.Name, r.Paths, text)
		}
	}
	if len(p.Egress.Allow) != 2 || !strings.Contains(text, "4 requests, 2 of them not allowed so far") || !strings.Contains(text, "3 requests, 1 of them not allowed so far") ||
		!strings.Contains(text, "refused whatever the rules: ") {
		t.Errorf("learned:\n%s", text)
	}
	session, _ := recordSession(t) // its policy doesn't narrow paths, ours does: the capture says GET
	if text, p := learn(session); len(p.Egress.Allow) < 1 || !slices.Equal(p.Egress.Allow[0].Methods, []string{"GET"}) ||
		!slices.Equal(p.Egress.Allow[0].Paths, []string{"/visible/path"}) {
		t.Errorf("learned:\n%s", text)
	}
	if text, p := learn(stripped(t, session)); len(p.Egress.Allow) < 1 || !slices.Equal(p.Egress.Allow[0].Methods, []string{"GET"}) ||
		!slices.Equal(p.Egress.Allow[0].Paths, []string{"/repos/**"}) || !strings.Contains(text, "no request is in the capture") {
		t.Errorf("learned without comments:\n%s", text)
	}
}

// stripped is a capture without comments, as other tools write it.
func stripped(t *testing.T, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "stripped.pcapng")
	w, err := capture.Create(out, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err != nil {
			break
		}
		switch rec.Kind {
		case capture.PacketRecord:
			w.Packet(rec.Direction, rec.Frame, "")
		case capture.NameRecord:
			for _, n := range rec.Names {
				w.Names(n, []netip.Addr{rec.Addr})
			}
		case capture.KeysRecord:
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMissingVerdictsAreNoPass: a guest that makes so many requests that not all could be noted must not pass a
// review that way.
func TestMissingVerdictsAreNoPass(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "curl-h1")
	reader, err := capture.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := reader.Next()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Options{})
	w.Packet(capture.FromGuest, rec.Frame, capture.LostVerdicts(3))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := read(t, out.Bytes(), review.Options{Policy: policyOf(t, &c)})
	if r.LostVerdicts != 3 || r.Count(review.Unreadable) != 1 {
		t.Errorf("%d verdicts are missing, unreadable: %d; want 3 and 1", r.LostVerdicts, r.Count(review.Unreadable))
	}
}

// TestLongConnectionsKeepTheirNames: a connection is its name's as long as it lasts, however long ago
// the name was resolved. A guest could wait for the pin's end with what a review shouldn't see.
func TestLongConnectionsKeepTheirNames(t *testing.T) {
	path := recordRequests(t)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := gatewaytest.Policy(t, strings.ReplaceAll(requestPolicy, "paths = ", "# paths = "))
	fresh := requestLines(read(t, file, review.Options{Policy: open}))
	delay(file, "msb http=", 2*time.Hour)
	if late := requestLines(read(t, file, review.Options{Policy: open})); !slices.Equal(late, fresh) {
		t.Errorf("two hours later:\n%s\nwant\n%s", strings.Join(late, "\n"), strings.Join(fresh, "\n"))
	}
}

// delay makes all packets of a capture later, from the first one on that holds text.
func delay(file []byte, text string, by time.Duration) {
	const packet, timeAt = 6, 12
	le, later := binary.LittleEndian, false
	for at := 0; at < len(file); at += int(le.Uint32(file[at+4:])) {
		block := file[at : at+int(le.Uint32(file[at+4:]))]
		if later = later || bytes.Contains(block, []byte(text)); later && le.Uint32(block) == packet {
			ns := uint64(le.Uint32(block[timeAt:]))<<32 | uint64(le.Uint32(block[timeAt+4:]))
			ns += uint64(by)
			le.PutUint32(block[timeAt:], uint32(ns>>32))
			le.PutUint32(block[timeAt+4:], uint32(ns))
		}
	}
}

// TestI7_ProxiedConnectionsKeepTheirNames: the same for what the gateway's proxy was asked for, whose comment says where it
// leads. A comment that says so of another connection ties it to no other address.
func TestI7_ProxiedConnectionsKeepTheirNames(t *testing.T) {
	t.Parallel()
	verdict := capture.Verdict{Kind: capture.KindFlow, Flow: 1, Action: "inspect", Rule: "api", Reason: "needs_request", Name: "good.example"}
	request := capture.Verdict{Action: "allow", Rule: "api", Reason: "rule", Method: "GET", Path: "/open/1"}
	to := func(v capture.Verdict, to string) capture.Verdict { v.To = to; return v }
	const elsewhere, good = "93.184.215.99:80", "93.184.215.14:80"
	for name, c := range map[string]struct {
		frame         func(flags byte, seq uint32, text string) []byte
		first, second string
		want          string
	}{
		"by the proxy":               {toProxy, good, good, "allow"},
		"by the proxy, to elsewhere": {toProxy, elsewhere, elsewhere, "deny"},
		"directly":                   {func(flags byte, seq uint32, text string) []byte { return segment(40000, flags, seq, text) }, elsewhere, elsewhere, "allow"},
		"elsewhere, directly": {func(flags byte, seq uint32, text string) []byte {
			f := segment(40000, flags, seq, text)
			copy(f[30:34], []byte{93, 184, 215, 99})
			return f
		}, good, good, "deny"},
	} {
		l := newLink()
		l.w.Packet(capture.FromGuest, c.frame(capture.SYN, 999, ""), to(verdict, c.first).String())
		l.w.Packet(capture.FromGuest, c.frame(capture.SYN, 999, ""), requestComment(to(request, c.second)))
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		for _, later := range []time.Duration{0, 3 * time.Hour} {
			delay(l.out.Bytes(), "msb http=", later)
			r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, followPolicy)})
			if len(r.Requests) != 1 || r.Requests[0].Verdict.Action != c.want {
				t.Errorf("%s, %s later: %q, want one request with %s", name, later, r.Rows(false), c.want)
			}
		}
	}
}
