package review_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
)

// placeholderScripts are about where a placeholder may stand. Answers are in spoken_answers_test.go.
func placeholderScripts() map[string]script {
	return map[string]script{
		"spoken-secret-hosts":         valueForItsHostOnly,
		"spoken-secret-other-sandbox": anotherSandboxesPlaceholder,
		"spoken-secret-places":        valueInItsPlaceOnly,
		"spoken-secret-many":          veryManyPlaceholders,
		"spoken-secret-split":         placeholdersInPieces,
		"spoken-secret-encoded":       placeholdersInOtherSpellings,
		"spoken-secret-two":           twoSecretsAtOnce,
		"spoken-secret-in-words":      placeholdersInsideOfWords,
		"spoken-secret-in-clear":      valueNeverInClear,
		"spoken-secret-websocket":     framesAreSearched,
	}
}

// bearer is the field of the right server with the value in it.
const bearer = "Bearer " + pcapgen.SecretValue

// second is the placeholder of the secret SECOND.
func (s *session) second() string { return s.Gateway.Placeholders()["SECOND"] }

// violates asserts that an answer is the refusal of one secret's placeholder.
func (a *answer) violates(reason, secret string) {
	a.s.t.Helper()
	a.refused(http.StatusForbidden, reason)
	if a.Refusal.Error != "secret_violation" || a.Refusal.Secret != secret {
		a.s.t.Errorf("%s: the refusal is %+v, want a violation of %s", a.What, a.Refusal, secret)
	}
}

// posted is a POST in raw form.
func posted(body string, fields ...string) string {
	return head("good.example", "POST /repos/a", append(fields, "Content-Length: "+strconv.Itoa(len(body)))...) + body
}

func valueForItsHostOnly(s *session) {
	web := s.site("good.example", goodSite, nil)
	others := []*site{s.site("other.example", otherSite, nil)}
	names := []string{"other.example", "x.good.example", "good.example.evil.example", "evil-good.example", "good-example.evil.example"}
	for i, name := range names[1:] {
		others = append(others, s.site(name, fmt.Sprintf("93.184.215.%d:443", i+1), nil))
	}
	for _, name := range names {
		s.tls(name).ask(name, "GET /a", s.with()).violates("secret_host", "TOKEN")
	}
	if conn, err := s.Dial(s.addr("good.example"), 8443); err == nil {
		_ = conn.Close()
		s.t.Error("the right host was reached on a port that no rule has")
	}
	s.dialled()
	s.tls("good.example").ask("good.example", "GET /repos/a", s.with()).is(http.StatusOK, "hello")
	if got := web.got("GET /repos/a")[0].credentials(); got != bearer {
		s.t.Errorf("the right server got %q", got)
	}
	for _, o := range others {
		o.got()
	}
}

func anotherSandboxesPlaceholder(s *session) {
	neighbour := gatewaytest.Start(s.life, pcapgen.SecretRules)
	foreign := neighbour.Gateway.Placeholders()["TOKEN"]
	if foreign == "" || foreign == s.token() {
		s.t.Fatalf("the neighbour's placeholder is %q, this sandbox's %q", foreign, s.token())
	}
	web, other := s.site("good.example", goodSite, nil), s.site("other.example", otherSite, nil)
	k := s.tls("good.example")
	k.ask("good.example", "GET /repos/a", "Authorization: Bearer "+foreign).is(http.StatusOK, "hello")
	k.ask("good.example", "GET /repos/b", s.with()).is(http.StatusOK, "hello")
	s.tls("other.example").ask("other.example", "GET /a", "Authorization: Bearer "+foreign).is(http.StatusOK, "hello")
	all := append(web.got("GET /repos/a", "GET /repos/b"), other.got("GET /a")...)
	for i, want := range []string{"Bearer " + foreign, bearer, "Bearer " + foreign} {
		if got := all[i].credentials(); got != want {
			s.t.Errorf("request %d brought %q, want %q", i, got, want)
		}
	}
}

func valueInItsPlaceOnly(s *session) {
	web := s.site("good.example", goodSite, nil)
	p := s.token()
	for what, raw := range map[string]string{
		"the path":          head("good.example", "GET /repos/"+p),
		"the query":         head("good.example", "GET /repos/a?token="+p),
		"a query's name":    head("good.example", "GET /repos/a?"+p+"=1"),
		"a cookie":          head("good.example", "GET /repos/a", "Cookie: session="+p),
		"the referer":       head("good.example", "GET /repos/a", "Referer: https://good.example/"+p),
		"the user agent":    head("good.example", "GET /repos/a", "User-Agent: agent/"+p),
		"a field's name":    head("good.example", "GET /repos/a", p+": 1"),
		"a field beside it": head("good.example", "GET /repos/a", s.with(), "X-Note: "+p),
		"a body":            posted("token="+p, "Content-Type: application/x-www-form-urlencoded"),
	} {
		k := s.tls("good.example")
		k.say(raw)
		k.answer(what).violates("secret_place", "TOKEN")
	}
	web.whole()
	s.tls("good.example").ask("good.example", "GET /repos/a", s.with()).is(http.StatusOK, "hello")
	if got := web.whole("GET /repos/a")[0].credentials(); got != bearer {
		s.t.Errorf("the right server got %q", got)
	}
}

func veryManyPlaceholders(s *session) {
	const fitting, tooMany = 200, 100_000
	web := s.site("good.example", goodSite, nil)
	s.tls("good.example").ask("good.example", "GET /repos/a", "Authorization: "+strings.Repeat(s.token(), fitting)).is(http.StatusOK, "hello")
	if got := web.got("GET /repos/a")[0].credentials(); got != strings.Repeat(pcapgen.SecretValue, fitting) {
		s.t.Errorf("%d placeholders became %.200q… of %d bytes", fitting, got, len(got))
	}
	s.enough() // the rest is three megabytes of the same
	k := s.tls("good.example")
	go func() { // the gateway stops reading long before the end
		_, _ = io.WriteString(k, head("good.example", "GET /repos/b", "Authorization: "+strings.Repeat(s.token(), tooMany)))
	}()
	k.answer("a head of megabytes").refused(http.StatusBadRequest, "head_too_large")
	web.got("GET /repos/a")
}

func twoSecretsAtOnce(s *session) {
	web, other := s.site("good.example", goodSite, nil), s.site("other.example", otherSite, nil)
	p, q := s.token(), s.second()
	k := s.tls("good.example")
	k.say(strings.Replace(posted("key is "+q, "Content-Type: text/plain", s.with(), "X-Api-Key: "+q), "/repos/a", "/repos/a?key="+q, 1))
	k.answer("both in their places").is(http.StatusOK, "hello")
	k.ask("good.example", "GET /repos/b", "Authorization: Bearer "+q, "X-Api-Key: "+q).violates("secret_place", "SECOND")
	k.ask("good.example", "GET /repos/c", s.with(), "X-Api-Key: "+p).violates("secret_place", "TOKEN")
	k.ask("good.example", "GET /repos/d", "Authorization: Bearer "+p+q).violates("secret_place", "SECOND")
	s.tls("other.example").ask("other.example", "GET /e", "X-Api-Key: "+q).violates("secret_host", "SECOND")
	other.got()
	got := web.got("POST /repos/a?key=" + pcapgen.SecondValue)[0]
	if got.credentials() != bearer || got.Header.Get("X-Api-Key") != pcapgen.SecondValue || got.Body != "key is "+pcapgen.SecondValue {
		s.t.Errorf("the right server got %+v", got)
	}
}

func placeholdersInsideOfWords(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	p, v := s.token(), pcapgen.SecretValue
	var paths []string
	words := [][2]string{{p + "suffix", v + "suffix"}, {"prefix" + p, "prefix" + v}, {"a" + p + "b", "a" + v + "b"}, {p + p, v + v}, {p[:len(p)-1], p[:len(p)-1]}}
	for _, word := range words {
		k.ask("good.example", "GET /repos/a", "Authorization: "+word[0]).is(http.StatusOK, "hello")
		paths = append(paths, "GET /repos/a")
	}
	for i, r := range web.got(paths...) {
		if got := r.credentials(); got != words[i][1] {
			s.t.Errorf("%q became %q, want %q", words[i][0], got, words[i][1])
		}
	}
}

func valueNeverInClear(s *session) {
	asked := make(chan string, 1)
	s.ServeHTTP("93.184.215.14:80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
		_, _ = io.WriteString(rw, "hello in clear")
	}))
	k := s.plain("good.example", 80)
	k.ask("good.example", "GET /repos/a", s.with()).violates("secret_plain_http", "TOKEN")
	s.dialled()
	k.ask("good.example", "GET /repos/a", "Authorization: none").is(http.StatusOK, "hello in clear")
	if got := <-asked; got != "none" || len(asked) > 0 {
		s.t.Errorf("the server got %q", got)
	}
}

// frame is a WebSocket frame of text (RFC 6455, section 5.2). The client's are masked, here with zeros.
func frame(client bool, text string) string {
	const final, mask = 0x81, 0x80
	if client {
		return string([]byte{final, mask | byte(len(text)), 0, 0, 0, 0}) + text
	}
	return string([]byte{final, byte(len(text))}) + text
}

func framesAreSearched(s *session) {
	got := make(chan string, 1)
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, _ *http.Request) {
		conn, rest, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			s.t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"+
			frame(false, "you are "+pcapgen.SecretValue))
		b, _ := io.ReadAll(rest)
		got <- string(b)
	})
	k := s.tls("good.example")
	k.say(head("good.example", "GET /repos/socket", s.with(), "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("the upgrade: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	want := frame(false, "you are "+s.token())
	back := make([]byte, len(want))
	if _, err := io.ReadFull(k.r, back); err != nil || string(back) != want {
		s.t.Errorf("the guest got %q, %v; want %q", back, err, want)
	}
	k.say(frame(true, "hello") + frame(true, "I am "+s.token()))
	if sent := <-got; sent != frame(true, "hello") {
		s.t.Errorf("the server got %q, want the first frame only", sent)
	}
	if rest, _ := io.ReadAll(k.r); !strings.HasSuffix(string(rest), "\x03\xf0secret_place") {
		s.t.Errorf("the guest got %q, want a Close frame", rest)
	}
	if credentials := web.got("GET /repos/socket")[0].credentials(); credentials != bearer {
		s.t.Errorf("the handshake brought %q", credentials)
	}
}
