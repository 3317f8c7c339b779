//go:build linux

package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runWgetHere runs wget in this process and returns what it printed.
func runWgetHere(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = runWget(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// wgetServer answers with what it got.
func wgetServer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/file", "/d/":
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	case "/cut":
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "0123")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/denied":
		w.Header().Set("X-Msb-Reason", "denied_method")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "not to be printed")
	case "/moved":
		http.Redirect(w, r, "/file", http.StatusFound)
	case "/round":
		http.Redirect(w, r, "/round", http.StatusFound)
	case "/silent":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{
			r.Method, r.Host, r.RequestURI, r.UserAgent(), r.Header.Get("X-A"), r.Header.Get("Content-Type"), string(body),
		}, "|"))
	}
}

func TestWgetSpeaksHTTPAsNewcomersAsk(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(wgetServer))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"form": "from a file", "empty": "", "log": "old", "part": "0123", "all": "0123456789", "exists": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		args string
		code int
		out  string // of standard output
		err  string // in standard error; "-" wants none
		file string // "NAME=TEXT"
	}{
		{args: "-qO- URL/x", out: "GET|HOST|/x|Wget|||", err: "-"},
		{args: "URL/x?a=b -q -O -", out: "GET|HOST|/x?a=b|Wget|||", err: "-"},
		{args: "-O- --quiet HOST/x", out: "GET|HOST|/x|Wget|||", err: "-"},
		{args: "-qO - --header X-A:1 --header=Host:other URL/x", out: "GET|other|/x|Wget|1||"},
		{args: "-q -U me --output-document=- URL/x", out: "GET|HOST|/x|me|||"},
		{args: "-q --user-agent -O -O - URL/x", out: "GET|HOST|/x|-O|||"},
		{args: "-qO- --post-data -q=1 URL/x", out: "POST|HOST|/x|Wget||" + form + "|-q=1"},
		{args: "-qO- --post-data= URL/x", out: "POST|HOST|/x|Wget||" + form + "|"},
		{args: "-qO- --post-file form --header Content-Type:text/a URL/x", out: "POST|HOST|/x|Wget||text/a|from a file"},
		{args: "-qO- --post-file=empty URL/x", out: "POST|HOST|/x|Wget||" + form + "|"},
		{args: "-qO- --post-file=none URL/x", code: 1, err: "wget: stat none: no such file"},
		{args: "-qO- URL/file URL/file", out: "01234567890123456789"},
		{args: "-qO- URL/moved", out: "0123456789"},
		{args: "-SO- -q URL/moved", out: "0123456789", err: "HTTP/1.1 302 Found"},
		{args: "-qO- URL/round", code: 1, err: "too many redirections"},
		{args: "URL/file", err: `"file" saved`, file: "file=0123456789"},
		{args: "-q URL/d/", file: "index.html=0123456789"},
		{args: "-q URL/exists", code: 1, err: "file exists"},
		{args: "-P sub/deep URL/file", file: "sub/deep/file=0123456789"},
		{args: "-q -O both URL/file URL/file", file: "both=01234567890123456789"},
		{args: "-qcO part URL/file", file: "part=0123456789"},
		{args: "-cO all URL/file", err: "already complete", file: "all=0123456789"},
		{args: "-q -c -O form URL/x", file: "form=GET|HOST|/x|Wget|||"},
		{args: "-O cut URL/cut", code: 4, err: "cut: connection closed before the end", file: "cut=0123"},
		{args: "-qO- URL/denied", code: 8, err: "wget: server returned error: HTTP/1.1 403 Forbidden (msb refused it: denied_method)\n"},
		{args: "-q -O nothing URL/denied", code: 8, file: "nothing"},
		{args: "--spider URL/file", err: "remote file exists", file: "index"},
		{args: "-q --spider URL/denied", code: 8},
		{args: "-qO- -o log URL/denied", code: 8, err: "-", file: "log=wget: server returned error: HTTP/1.1 403 Forbidden (msb refused it: denied_method)\n"},
		{args: "-qO- -T 0.1 URL/silent", code: 4, err: "i/o timeout"},
		{args: "-qO- -T0.1 -t 2 http://127.0.0.1:1/", code: 4, err: "connection refused"},
		{args: "-qO- URL/denied URL/file", code: 8, out: "0123456789"},
		{args: "-qO- http://[::1", code: 1, err: "missing ']'"},
		{args: "-qz URL/", code: 1, err: "usage: wget"},
		{args: "--mirror URL/", code: 1, err: "usage: wget"},
		{args: "-q", code: 1, err: "missing URL"},
		{args: "URL/ -T", code: 1, err: "usage: wget"},
		{args: "-T x URL/", code: 1, err: "usage: wget"},
		{args: "--header none URL/", code: 1, err: "needs a colon"},
	} {
		fill := strings.NewReplacer("URL", s.URL, "HOST", host)
		code, out, err := runWgetHere(t, strings.Fields(fill.Replace(c.args))...)
		if code != c.code || out != fill.Replace(c.out) || c.err == "-" && err != "" || !strings.Contains(err, strings.TrimPrefix(c.err, "-")) {
			t.Errorf("wget %s: exit %d, printed %q and %q; want %d, %q and %q", c.args, code, out, err, c.code, c.out, c.err)
		}
		if name, want, ok := strings.Cut(c.file, "="); c.file != "" {
			if got, err := os.ReadFile(name); string(got) != fill.Replace(want) || (err == nil) != ok {
				t.Errorf("wget %s: %s holds %q, %v; want %q", c.args, name, got, err, want)
			}
		}
	}
}

func TestWgetVerifiesCertificatesOfHTTPS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(wgetServer))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshakes that fail below
	s.StartTLS()
	t.Cleanup(s.Close)
	code, out, err := runWgetHere(t, "-qO-", s.URL+"/file")
	if code != 5 || out != "" || !strings.Contains(err, "signed by unknown authority") || !strings.Contains(err, "have msb inspect the host") {
		t.Errorf("exit %d, printed %q and %q; want 5 and the remedy", code, out, err)
	}
	if code, out, err := runWgetHere(t, "-qO-", "--no-check-certificate", s.URL+"/file"); code != 0 || out != "0123456789" {
		t.Errorf("unchecked: exit %d, printed %q and %q", code, out, err)
	}
	if code, _, err := runWgetHere(t, "-qO-", "https://"+strings.TrimPrefix(plainServer(t), "http://")); code != 5 {
		t.Errorf("no TLS: exit %d, %q; want 5", code, err)
	}
	// Roots are read once in a process.
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	wget := filepath.Join(t.TempDir(), "wget")
	self, exeErr := os.Executable()
	if exeErr != nil {
		t.Fatal(exeErr)
	}
	if err := os.Symlink(self, wget); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), wget, "-qO-", s.URL+"/file")
	cmd.Env = []string{"SSL_CERT_FILE=" + bundle}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "0123456789" {
		t.Errorf("with the sandbox's bundle: %q, %v", out, err)
	}
}

// TestMain is wget where it is called so, as the program's main is.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "wget" {
		main()
	}
	os.Exit(m.Run())
}

func plainServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(wgetServer))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWgetUsesEnvironmentProxies(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "by proxy: "+r.RequestURI)
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("http_proxy", proxy.URL)
	t.Setenv("https_proxy", proxy.URL)
	if code, out, err := runWgetHere(t, "-qO-", "http://site.example/x"); code != 0 || out != "by proxy: http://site.example/x" {
		t.Errorf("exit %d, printed %q and %q", code, out, err)
	}
	if code, _, err := runWgetHere(t, "-qO-", "https://site.example/x"); code != 8 || !strings.Contains(err, "HTTP/1.1 403 Forbidden") {
		t.Errorf("refused CONNECT: exit %d, %q", code, err)
	}
	s := plainServer(t)
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	for _, off := range []string{"--no-proxy", "-Yoff"} {
		if code, out, err := runWgetHere(t, "-qO-", off, "http://"+strings.TrimPrefix(s, "http://")+"/file"); code != 0 || out != "0123456789" {
			t.Errorf("%s: exit %d, printed %q and %q", off, code, out, err)
		}
	}
}

// TestWgetRetriesNetworkFailures: a connection that is closed at once is tried -t times.
func TestWgetRetriesNetworkFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	count := make(chan int)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				count <- n
				return
			}
			n++
			_ = c.Close()
		}
	}()
	code, _, stderr := runWgetHere(t, "-qO-", "-t", "3", "--header", "Connection: close", "--post-data", "x", "http://"+l.Addr().String()+"/")
	_ = l.Close()
	if n := <-count; code != 4 || n != 3 {
		t.Errorf("exit %d after %d connections (%s), want 4 after 3", code, n, stderr)
	}
}
