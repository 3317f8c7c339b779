package review_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
)

// answerScripts are about how a value comes back.
func answerScripts() map[string]script {
	return map[string]script{
		"spoken-secret-redirect":       redirectsWithTheValue,
		"spoken-secret-echo-fields":    valuesInFields,
		"spoken-secret-echo-bodies":    valuesInBodies,
		"spoken-secret-echo-spellings": valuesInOtherSpellings,
		"spoken-secret-halves":         valuesInHalves,
		"spoken-secret-rotation":       valuesThatChange,
	}
}

// value is what a server was sent as the secret's value.
func value(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// shows asserts that an answer has the placeholder wherever the server put the value, and not the value.
func (a *answer) shows(status int, want string, fields ...string) {
	a.s.t.Helper()
	a.is(status, want)
	if strings.Contains(a.Body, pcapgen.SecretValue) {
		a.s.t.Errorf("%s: the guest reads the value", a.What)
	}
	for _, name := range fields {
		if got := a.Header.Get(name); !strings.Contains(got, a.s.token()) {
			a.s.t.Errorf("%s: %s is %q, want the placeholder in it", a.What, name, got)
		}
	}
}

func redirectsWithTheValue(s *session) {
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://"+r.URL.Query().Get("to")+"/?token="+value(r), http.StatusFound)
	})
	other := s.site("other.example", otherSite, nil)
	k := s.tls("good.example")
	for _, to := range []string{"other.example", "evil.example"} {
		a := k.ask("good.example", "GET /repos/a?to="+to, s.with())
		a.shows(http.StatusFound, "", "Location")
		target, found := strings.CutPrefix(a.Header.Get("Location"), "https://"+to)
		if !found {
			s.t.Fatalf("the redirect leads to %q", a.Header.Get("Location"))
		}
		if to == "other.example" {
			s.tls(to).ask(to, "GET "+target).violates("secret_host", "TOKEN")
		} else if answer := s.Resolve(to, dns.TypeA); len(answer.Answer) > 0 {
			s.t.Errorf("%s was resolved: %v", to, answer.Answer)
		}
	}
	web.got("GET /repos/a?to=other.example", "GET /repos/a?to=evil.example")
	other.got()
	s.dialled("tcp " + goodSite)
}

func valuesInFields(s *session) {
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		v := value(r)
		rw.Header().Set("Link", "</"+v+">; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		for name, text := range map[string]string{"X-Echo": v, "Set-Cookie": "session=" + v + "; Secure", "Location": "/" + v, "Www-Authenticate": `Bearer error="` + v + `"`} {
			rw.Header().Set(name, text)
		}
		rw.Header().Set("Trailer", "X-Sum")
		status := http.StatusOK
		_, _ = fmt.Sscanf(r.URL.Path, "/repos/%d", &status)
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, "<h1>you sent "+v+"</h1>")
		rw.Header().Set("X-Sum", v)
	})
	fields := []string{"Link", "X-Echo", "Set-Cookie", "Location", "Www-Authenticate"}
	page := "<h1>you sent " + s.token() + "</h1>"
	stream := uint32(1)
	h := s.h2("good.example")
	for _, status := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusInternalServerError} {
		path := fmt.Sprintf("/repos/%d", status)
		k := s.tls("good.example")
		k.say(head("good.example", "GET "+path, s.with(), "TE: trailers"))
		hint, err := http.ReadResponse(k.r, nil) // Go's reader gives interim answers too
		if err != nil || hint.StatusCode != http.StatusEarlyHints || !strings.Contains(hint.Header.Get("Link"), s.token()) {
			s.t.Fatalf("the early hint is %+v, %v", hint, err)
		}
		_ = hint.Body.Close()
		k.answer(path).shows(status, page, fields...)
		h.ask(stream, h2get("good.example", path, "authorization", "Bearer "+s.token(), "te", "trailers")).shows(status, page, fields...)
		stream += 2
	}
	for _, r := range web.got("GET /repos/200", "GET /repos/200", "GET /repos/401", "GET /repos/401", "GET /repos/500", "GET /repos/500") {
		if r.credentials() != bearer {
			s.t.Errorf("the server got %q, so what it repeats shows nothing", r.credentials())
		}
	}
}

// packers write in an encoding.
func packers() map[string]func(io.Writer) io.WriteCloser {
	return map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			if err != nil {
				panic(err)
			}
			return z
		},
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"raw deflate": func(w io.Writer) io.WriteCloser {
			z, err := flate.NewWriter(w, flate.DefaultCompression)
			if err != nil {
				panic(err)
			}
			return z
		},
	}
}

func valuesInBodies(s *session) {
	packed := packers()
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		text, flush := "you sent "+value(r)+".", rw.(http.Flusher).Flush
		switch kind := r.Header.Get("X-Kind"); kind {
		case "length":
			rw.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = io.WriteString(rw, text)
		case "chunks":
			for _, part := range []string{text[:20], text[20:30], text[30:]} {
				_, _ = io.WriteString(rw, part)
				flush()
			}
		case "events":
			rw.Header().Set("Content-Type", "text/event-stream")
			for range 2 {
				_, _ = io.WriteString(rw, "data: "+text+"\n\n")
				flush()
			}
		default:
			rw.Header().Set("Content-Encoding", strings.TrimPrefix(kind, "raw "))
			w := packed[kind](rw)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
		}
	})
	kinds := []string{"length", "chunks", "events", "gzip", "br", "zstd", "deflate", "raw deflate"}
	for i, kind := range kinds {
		want := "you sent " + s.token() + "."
		if kind == "events" {
			want = "data: " + want + "\n\ndata: " + want + "\n\n"
		}
		fields := []string{s.with(), "X-Kind: " + kind, "Accept-Encoding: gzip, br, zstd, deflate"}
		a := s.tls("good.example").ask("good.example", "GET /repos/a", fields...)
		a.What = kind
		a.shows(http.StatusOK, want)
		if encoding := a.Header.Get("Content-Encoding"); encoding != "" {
			s.t.Errorf("%s: the guest gets the encoding %q", kind, encoding)
		}
		if got := web.all(); len(got) != i+1 || got[i].credentials() != bearer {
			s.t.Errorf("%s: the server got %+v, so what it repeats shows nothing", kind, got)
		}
	}
}

func valuesInOtherSpellings(s *session) {
	s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		for what, text := range spellings(value(r)) {
			_, _ = io.WriteString(rw, what+": "+text+"\n")
		}
	})
	a := s.tls("good.example").ask("good.example", "GET /repos/a", s.with())
	a.shows(http.StatusOK, "JSON: ")
	for what, text := range spellings(pcapgen.SecretValue) {
		if strings.Contains(a.Body, text) {
			s.t.Errorf("the guest got the value in %s", what)
		}
	}
}

func valuesInHalves(s *session) {
	const before = "you sent "
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		v := value(r)
		rw.Header().Set("ETag", `"`+v+`"`)
		if r.Header.Get("If-None-Match") != "" {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		text := []byte(before + v + ".")
		if asked := r.Header.Get("Range"); asked != "" {
			rw.WriteHeader(http.StatusPartialContent)
			text = text[:len(before)+len(v)/2]
		}
		_, _ = io.Copy(rw, bytes.NewReader(text))
	})
	k := s.tls("good.example")
	half := len(before) + len(pcapgen.SecretValue)/2
	for _, asked := range []string{fmt.Sprintf("bytes=0-%d", half-1), fmt.Sprintf("bytes=%d-", half), "bytes=-40"} {
		a := k.ask("good.example", "GET /repos/a", s.with(), "Range: "+asked, `If-Range: "x"`)
		a.shows(http.StatusOK, before+s.token()+".", "ETag")
	}
	k.ask("good.example", "GET /repos/b", s.with(), `If-None-Match: "x"`).shows(http.StatusNotModified, "", "ETag")
	for _, r := range web.got("GET /repos/a", "GET /repos/a", "GET /repos/a", "GET /repos/b") {
		if r.credentials() != bearer || r.Header.Get("Range")+r.Header.Get("If-Range") != "" {
			s.t.Errorf("the server got %v", r.Header)
		}
	}
}

func valuesThatChange(s *session) {
	var values []string // the server's handler runs for one request at a time
	web := s.site("good.example", goodSite, func(rw http.ResponseWriter, r *http.Request) {
		values = append(values, value(r))
		_, _ = io.WriteString(rw, "values so far: "+strings.Join(values, ", "))
	})
	p := s.token()
	k := s.tls("good.example")
	k.ask("good.example", "GET /repos/a", s.with()).shows(http.StatusOK, "values so far: "+p)
	if err := s.Gateway.Reload(gatewaytest.Policy(s.t, pcapgen.RotatedRules)); err != nil {
		s.t.Fatal(err)
	}
	k.ask("good.example", "GET /repos/b", s.with()).shows(http.StatusOK, "values so far: "+p+", "+p)
	web.got("GET /repos/a", "GET /repos/b")
	if want := []string{pcapgen.SecretValue, pcapgen.SecondValue}; !slices.Equal(values, want) {
		s.t.Errorf("the server got the values %q, want %q", values, want)
	}
}
