package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// TestI15_ServerTokensAreTheUsersAlone: the first start makes the token, later ones take it as it is, and none that others
// can read or have put there.
func TestI15_ServerTokensAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	token, path, err := serverToken(home)
	if err != nil || len(token) < 26 {
		t.Fatalf("%q, %v", token, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, _, err := serverToken(home); err != nil || again != token {
		t.Errorf("the next start has %q, %v", again, err)
	}
	other := write(t, "token", token+"\n")
	for what, change := range map[string]func() error{
		"others read it": func() error { return os.Chmod(path, 0o644) },
		"its group reads it": func() error {
			return errors.Join(os.WriteFile(path, []byte(token), 0o600), os.Chmod(path, 0o640))
		},
		"a link":          func() error { return os.Symlink(other, path) },
		"a pipe":          func() error { return syscall.Mkfifo(path, 0o600) },
		"cut short":       func() error { return os.WriteFile(path, []byte(token[:8]), 0o600) },
		"a space within":  func() error { return os.WriteFile(path, []byte(token+" "+token), 0o600) },
		"nothing in it":   func() error { return os.WriteFile(path, nil, 0o600) },
		"a directory":     func() error { return os.Mkdir(path, 0o700) },
		"what was made":   nil,
		"another of ours": func() error { return os.WriteFile(path, []byte(strings.Repeat("A", 64)), 0o600) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if what == "others read it" {
			if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			if err := change(); err != nil {
				t.Fatal(err)
			}
		}
		good := change == nil || what == "another of ours"
		if got, _, err := serverToken(home); (err == nil) != good || !good && !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// serverBound is far more than a server takes to begin and to end. One that should have refused its flags, or ended, is
// killed then, and its test fails instead of waiting for ever.
const serverBound = 30 * time.Second

// boundedServer is msb server, ended after serverBound.
func boundedServer(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), serverBound)
	t.Cleanup(cancel)
	return commandUntil(ctx, t, env, append([]string{"server"}, args...)...)
}

// endServer waits for a server after SIGTERM.
func endServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if how := cmd.ProcessState.String(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		t.Errorf("a signal doesn't end it: %s", how)
	}
}

// TestServerListensAndEnds starts the program, asks it without and with its token, and ends it by a signal.
func TestServerListensAndEnds(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	cmd := boundedServer(t, []string{"MSB_HOME=" + home}, "start", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, file, ok := strings.Cut(strings.TrimSpace(line), "; clients send the token of ")
	if err != nil || !ok || file != filepath.Join(home, tokenFile) {
		t.Errorf("%q, %v", line, err)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for auth, want := range map[string]int{"": http.StatusUnauthorized, "Bearer " + strings.TrimSpace(string(token)): http.StatusBadRequest} { // it is no message
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", auth)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%q: %d, want %d", auth, answer.StatusCode, want)
		}
	}
	endServer(t, cmd)
}

// TestI15_ServersSpeakTLS: a server with --tls-cert answers to TLS 1.2 and newer alone. What it answers is that the token is
// missing.
func TestI15_ServersSpeakTLS(t *testing.T) {
	t.Parallel()
	other := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1
	defer other.Close()
	key, err := x509.MarshalPKCS8PrivateKey(other.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	asPEM := func(kind string, der []byte) string {
		return write(t, "pem", string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	cmd := boundedServer(t, []string{"MSB_HOME=" + t.TempDir()}, "start", "--listen", "127.0.0.1:0",
		"--tls-cert", asPEM("CERTIFICATE", other.Certificate().Raw), "--tls-key", asPEM("PRIVATE KEY", key))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, _, _ := strings.Cut(line, ";")
	at, ok := strings.CutPrefix(url, "https://")
	if err != nil || !ok {
		t.Errorf("%q, %v", line, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(other.Certificate())
	for what, c := range map[string]struct {
		url     string
		most    uint16
		answers bool
	}{
		"TLS 1.3": {url, tls.VersionTLS13, true}, "TLS 1.2": {url, tls.VersionTLS12, true}, "TLS 1.1": {url, tls.VersionTLS11, false}, "no TLS": {"http://" + at, 0, false},
	} {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: c.most}}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err == nil {
			_ = answer.Body.Close()
		}
		if answers := err == nil && answer.StatusCode == http.StatusUnauthorized; answers != c.answers {
			t.Errorf("%s: %+v, %v", what, answer, err)
		}
	}
	endServer(t, cmd)
}

// startServer starts a server and returns what it prints and logs, and what ends it.
func startServer(t *testing.T, cmd *exec.Cmd) (line, url string, log *transcriptOf, end func()) {
	t.Helper()
	log = &transcriptOf{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	url, _, _ = strings.Cut(strings.TrimSpace(line), ";")
	return line, url, log, func() { endServer(t, cmd) }
}

// transcriptOf is what a program writes while it is read.
type transcriptOf struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *transcriptOf) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *transcriptOf) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestI15_ServersSayWhoMayUseThem: which of them ask for a token, which warn, and which names they take for themselves.
func TestI15_ServersSayWhoMayUseThem(t *testing.T) {
	t.Parallel()
	const open, readable = "no token is asked for", "reads the token and all that agents do"
	for args, c := range map[string]struct {
		warns         string
		token         bool
		name, another int
	}{
		"--listen 127.0.0.1:0":                       {"", true, 403, 403},
		"--listen 127.0.0.1:0 --host msb.example":    {"", true, 401, 403},
		"--listen 0.0.0.0:0":                         {readable, true, 403, 403},
		"--dev --listen 127.0.0.1:0":                 {open, false, 403, 403},
		"--dev --listen [::1]:0 --host msb.example":  {open, false, 400, 403},
		"--listen 0.0.0.0:0 --host x --host a.other": {readable, true, 403, 401},
	} {
		line, url, log, end := startServer(t, boundedServer(t, []string{"MSB_HOME=" + t.TempDir()}, append([]string{"start"}, strings.Fields(args)...)...))
		if strings.Contains(line, "; clients send the token of ") != c.token {
			t.Errorf("%s: it prints %q", args, line)
		}
		for name, want := range map[string]int{"": map[bool]int{true: 401, false: 400}[c.token], "msb.example": c.name, "a.other": c.another} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("x")) // which is no message
			if err != nil {
				t.Fatal(err)
			}
			r.Host = name
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s: for the host %q %d, want %d", args, name, answer.StatusCode, want)
			}
		}
		for _, warning := range []string{open, readable} { // which come before the line
			if got := strings.Contains(log.String(), warning); got != (warning == c.warns) {
				t.Errorf("%s: warns %q: %v; %s", args, warning, got, log)
			}
		}
		end()
	}
}

func TestServerFlagsAreChecked(t *testing.T) {
	t.Parallel()
	env := []string{"MSB_HOME=" + t.TempDir()}
	for args, say := range map[string]string{
		"--tls-key x.pem": "go together", "--dev --listen 192.0.2.1:0": "127.0.0.1 or ::1 only", "--listen 127.0.0.1:0 --tls-cert /none --tls-key /none": "/none",
		"--dev --listen 0.0.0.0:0": "127.0.0.1 or ::1 only", "--dev --listen :0": "127.0.0.1 or ::1 only", "--listen nowhere": "ADDRESS:PORT", "--tls-cert x.pem": "go together",
	} {
		if got := finish(t, boundedServer(t, env, append([]string{"start"}, strings.Fields(args)...)...)); got.code != exitOther || !strings.Contains(got.err, say) {
			t.Fatalf("%s: %+v, want %q", args, got, say)
		}
	}
}
