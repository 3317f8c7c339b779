package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// registryOf takes one password and no other.
func registryOf(t *testing.T, password string) (host string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, _ := r.BasicAuth(); p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "no\x1b[2Jbody")
		}
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func TestLoginIsTriedBeforeStored(t *testing.T) {
	t.Parallel()
	host := registryOf(t, "secret")
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	env := []string{"DOCKER_CONFIG=" + dir, "HOME=" + t.TempDir()}
	login := func(password string) result {
		cmd := command(t, env, "login", "-u", "me", "--password-stdin", host)
		cmd.Stdin = strings.NewReader(password)
		return finish(t, cmd)
	}
	if got := login("wrong\n"); got.code != exitImageUnknown && got.code != exitImageRefused && got.code != exitOther || !strings.Contains(got.err, "does not take") || strings.Contains(got.err, "\x1b") || got.out != "" {
		t.Errorf("a wrong password: %+v", got)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is stored: %v", err)
	}
	got := login("secret\r\n")
	b, err := os.ReadFile(file)
	if got.code != 0 || got.out != "Login Succeeded\n" || !strings.Contains(got.err, "unencrypted in "+file) || err != nil || !strings.Contains(string(b), "bWU6c2VjcmV0") {
		t.Errorf("%+v; %s, %v", got, b, err)
	}
	if got := msb(t, env, "logout", host); got.code != 0 || got.out != "Removing login credentials for "+host+"\n" {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "logout", host); got.code != 0 || !strings.Contains(got.err, "nobody is logged in") {
		t.Errorf("again: %+v", got)
	}
}

func TestI12_LoginsSayWhatTheyLack(t *testing.T) {
	t.Parallel()
	env := []string{"DOCKER_CONFIG=" + t.TempDir()}
	for say, args := range map[string][]string{
		"--password-stdin":      {"login", "-p", "x", "127.0.0.1:1"},
		"see a command line":    {"login", "--password", "x", "127.0.0.1:1"},
		"give --username too":   {"login", "--password-stdin", "127.0.0.1:1"},
		"no terminal to ask on": {"login", "127.0.0.1:1"},
		"password is empty":     {"login", "-u", "me", "--password-stdin", "127.0.0.1:1"},
		"write HOST[:PORT]":     {"logout", "a b"},
	} {
		if got := msb(t, env, args...); got.code != exitOther || !strings.Contains(got.err, say) {
			t.Errorf("%q: %+v; want %q", args, got, say)
		}
	}
}
