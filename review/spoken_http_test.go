package review_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/msb-project/msb/internal/pcapgen"
)

// httpScripts are attacks by single requests of HTTP/1.1.
func httpScripts() map[string]script {
	return map[string]script{
		"spoken-http-kept-connection":         keptConnection,
		"spoken-http-rewriting-fields":        rewritingFields,
		"spoken-http-connection-names-fields": connectionNamesFields,
		"spoken-http-trace":                   traceAndConnect,
		"spoken-http-expect":                  expectations,
		"spoken-http-path-tricks":             pathTricks,
		"spoken-http-gzip-bomb":               gzipBomb,
		"spoken-http-slow-head":               slowHead,
	}
}

func keptConnection(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	k.ask("good.example", "GET /repos/a", s.with()).is(http.StatusOK, "hello")
	k.ask("good.example", "GET /admin", s.with()).refused(http.StatusForbidden, "path_not_allowed")
	k.ask("good.example", "DELETE /repos/a", s.with()).refused(http.StatusForbidden, "method_not_allowed")
	k.ask("good.example", "GET /repos/b?key="+s.token()).refused(http.StatusForbidden, "secret_place")
	k.say(head("good.example", "GET /repos/c") + head("good.example", "GET /admin") + head("good.example", "GET /repos/d", s.with()))
	k.answer("the first of three").is(http.StatusOK, "hello")
	k.answer("the second of three").refused(http.StatusForbidden, "path_not_allowed")
	k.answer("the third of three").is(http.StatusOK, "hello")
	const value = "Bearer " + pcapgen.SecretValue
	all := web.got("GET /repos/a", "GET /repos/c", "GET /repos/d")
	for i, want := range []string{value, "", value} {
		if got := all[i].credentials(); got != want {
			s.t.Errorf("request %d: the server got the credentials %q, want %q", i, got, want)
		}
	}
}

func rewritingFields(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	rewriting := []string{
		"X-Forwarded-Host: evil.example", "Forwarded: host=evil.example", "X-Host: evil.example", "X-Forwarded-Server: evil.example",
		"X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X_Original_URL: /admin",
	}
	k.ask("good.example", "GET /repos/a", append(rewriting, s.with())...).is(http.StatusOK, "hello")
	for _, override := range []string{"X-HTTP-Method-Override: DELETE", "X-HTTP-Method: delete", "X-Method-Override: PUT"} {
		k.ask("good.example", "POST /repos/a", override, "Content-Length: 0", s.with()).refused(http.StatusForbidden, "method_not_allowed")
	}
	r := web.got("GET /repos/a")[0]
	if r.credentials() != "Bearer "+pcapgen.SecretValue {
		s.t.Errorf("the server got the credentials %q", r.credentials())
	}
	for name, values := range r.Header {
		if all := name + strings.Join(values, ""); strings.Contains(all, "evil.example") || strings.Contains(all, "/admin") {
			s.t.Errorf("the server got %s: %q", name, values)
		}
	}
}

func connectionNamesFields(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	for _, field := range []string{"Connection: authorization", "Connection: keep-alive, AUTHORIZATION"} {
		k.ask("good.example", "GET /repos/a", s.with(), field).is(http.StatusOK, "hello")
	}
	for _, r := range web.got("GET /repos/a", "GET /repos/a") {
		if r.credentials() != "" {
			s.t.Errorf("the server got the credentials %q", r.credentials())
		}
	}
}

func traceAndConnect(s *session) {
	web := s.site("good.example", goodSite, nil)
	s.tls("good.example").ask("good.example", "TRACE /repos/a", s.with()).refused(http.StatusMethodNotAllowed, "trace")
	s.tls("good.example").ask("good.example", "CONNECT evil.example:443", s.with()).refused(http.StatusMethodNotAllowed, "connect")
	web.got()
	s.dialled()
}

func expectations(s *session) {
	web := s.site("good.example", goodSite, nil)
	const waits = "Expect: 100-continue"
	s.tls("good.example").ask("good.example", "POST /admin", waits, "Content-Length: 5").refused(http.StatusForbidden, "path_not_allowed")
	s.dialled()
	k := s.tls("good.example")
	k.say(head("good.example", "POST /repos/a", waits, "Content-Length: 5", s.with()))
	goOn, err := http.ReadResponse(k.r, nil)
	if err != nil || goOn.StatusCode != http.StatusContinue {
		s.t.Fatalf("got %+v, %v; want 100", goOn, err)
	}
	k.say("hello")
	k.answer("a body that waited").is(http.StatusOK, "hello")
	k.ask("good.example", "POST /repos/b", "Expect: a-miracle", "Content-Length: 0").refused(http.StatusBadRequest, "expect")
	if r := web.got("POST /repos/a")[0]; r.Body != "hello" || r.credentials() != "Bearer "+pcapgen.SecretValue {
		s.t.Errorf("the server got %+v", r)
	}
}

func pathTricks(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	for _, path := range []string{
		"/repos/../admin", "/repos/%2e%2e/admin", "/repos/.%2E/admin", "/repos/%252e%252e/admin", "/repos//../admin", "/repos/./../admin",
		"/repos/..%2fadmin", "/repos/..;/admin", "/repos/..\\admin", "/repos/%5c..%5cadmin", "/./admin", "//admin", "/REPOS/a", "/repos/a/%00",
	} {
		a := k.ask("good.example", "GET "+path, s.with())
		if a.Status != http.StatusForbidden || !strings.HasPrefix(a.Refusal.Reason, "path_") {
			s.t.Errorf("%s: status %d: %s", path, a.Status, a.Body)
		}
	}
	k.ask("good.example", "GET /repos/a#/../../admin", s.with()).refused(http.StatusBadRequest, "request_target")
	web.got()
	s.dialled()
}

// gzipBomb: members of gzip can stand behind each other, so one is made and sent over and over.
func gzipBomb(s *session) {
	const (
		inside  = 4 << 20   // bytes of zeros in one member
		members = 4096      // 16 GiB in 16 MiB
		shown   = 32 << 10  // what the guest reads before the recording ends
		read    = 512 << 10 // what it reads before it hangs up
	)
	var member bytes.Buffer
	z, _ := gzip.NewWriterLevel(&member, gzip.BestCompression)
	_, _ = z.Write(make([]byte, inside))
	_ = z.Close()
	var sent atomic.Int64
	ended := make(chan error, 1)
	s.site("good.example", goodSite, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		for range members {
			n, err := rw.Write(member.Bytes())
			sent.Add(int64(n))
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	})
	before := live()
	k := s.tls("good.example")
	k.say(head("good.example", "GET /repos/a", "Accept-Encoding: gzip", s.with()))
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, shown); err != nil {
		s.t.Fatal(err)
	}
	s.enough()
	if _, err := io.CopyN(io.Discard, resp.Body, read-shown); err != nil {
		s.t.Fatal(err)
	}
	if grown := live() - before; grown > maxBusy {
		s.t.Errorf("%d bytes more are live while the guest stands still", grown)
	}
	_ = k.Close()
	if err := <-ended; err == nil {
		s.t.Errorf("all %d bytes were taken from the server, though the guest read %d of what is in them", sent.Load(), read)
	}
}

func slowHead(s *session) {
	web := s.site("good.example", goodSite, nil)
	k := s.tls("good.example")
	for _, b := range []byte(head("good.example", "GET /admin", "A: b")) {
		k.say(string(b))
	}
	k.answer("a slow head").refused(http.StatusForbidden, "path_not_allowed")
	web.got()
	s.dialled()
}
