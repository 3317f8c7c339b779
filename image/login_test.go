package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guarded makes a registry ask for "user" and "secret": by itself, or by tokens that it gives for them.
func guarded(reg *testRegistry, tokens bool) {
	refuse := func(w http.ResponseWriter, how string) {
		w.Header().Set("WWW-Authenticate", how)
		w.WriteHeader(http.StatusUnauthorized)
	}
	serve := func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		known := user == "user" && password == "secret"
		switch {
		case tokens && req.URL.Path == "/token" && known:
			_, _ = io.WriteString(w, `{"token":"t0k3n"}`)
		case tokens && req.URL.Path == "/token":
			refuse(w, `Basic realm="x"`)
		case tokens && req.Header.Get("Authorization") != "Bearer t0k3n":
			refuse(w, fmt.Sprintf(`Bearer realm="%s/token",service="test"`, reg.URL))
		case !tokens && !known:
			refuse(w, `Basic realm="x"`)
		default:
			reg.serve(w, req)
		}
	}
	handler := http.HandlerFunc(serve)
	reg.any.Store(&handler)
}

// dockerDir is a directory for docker's configuration, which holds text unless that is "".
func dockerDir(t *testing.T, text string) (file string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("HOME", t.TempDir())
	file = filepath.Join(dir, "config.json")
	if text != "" {
		mustWrite(t, file, []byte(text))
	}
	return file
}

func serverOf(t *testing.T, text string) Server {
	t.Helper()
	s, err := ParseServer(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A pull works after the login and not before, whatever the registry asks for.
func TestPullsUseLogins(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		reg := newTestRegistry(t)
		ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "1")}}, "app:v1")
		guarded(reg, tokens)
		dockerDir(t, "")
		server := serverOf(t, reg.host())
		s := openStore(t, StoreOptions{})
		if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("tokens %t, before the login: %v", tokens, err)
		}
		for _, wrong := range []Login{{"user", "wrong"}, {"other", "secret"}} {
			if _, err := server.TryLogin(t.Context(), wrong, StoreOptions{}); !errors.Is(err, ErrUnauthorized) || strings.Contains(err.Error(), wrong.Password) {
				t.Errorf("tokens %t, %+v: %v", tokens, wrong, err)
			}
		}
		good := Login{"user", "secret"}
		if looked, err := server.TryLogin(t.Context(), good, StoreOptions{}); err != nil || !looked {
			t.Fatalf("tokens %t: %t, %v", tokens, looked, err)
		}
		if _, err := server.StoreLogin(good); err != nil {
			t.Fatal(err)
		}
		mustResolve(t, s, ref, Options{})
		if known, err := server.RemoveLogin(); err != nil || !known {
			t.Errorf("%t, %v", known, err)
		}
		if _, err := s.Resolve(t.Context(), ref, Options{Pull: PullAlways}); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("tokens %t, after the logout: %v", tokens, err)
		}
	}
}

func TestOpenRegistriesLookAtNoPassword(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	if looked, err := serverOf(t, reg.host()).TryLogin(t.Context(), Login{"a", "b"}, StoreOptions{}); err != nil || looked {
		t.Errorf("%t, %v", looked, err)
	}
}

// TestI5_PasswordsGoNowhereElse: where the registry leads to for a token, nothing is sent that is nearer to this machine
// or in the clear.
func TestI5_PasswordsGoNowhereElse(t *testing.T) {
	t.Parallel()
	reached := newTestRegistry(t)
	for _, realm := range []string{"https://169.254.169.254/token", "http://169.254.169.254/token", "http://elsewhere.test/token", reached.URL + "/token", "file:///etc/passwd", "%zz"} {
		reg := newTestRegistry(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
		reg.any.Store(&h)
		if _, err := serverOf(t, reg.host()).TryLogin(t.Context(), Login{"user", "secret"}, StoreOptions{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", realm, err)
		}
	}
	if reached.gets.Load() != 0 {
		t.Error("another server of this machine was asked")
	}
}

func TestI11_AnswersToLoginsAreBounded(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"a long refusal": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, strings.Repeat("é", 40<<10))
		},
		"a web page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		},
		"an end": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		reg := newTestRegistry(t)
		reg.any.Store(&h)
		if _, err := serverOf(t, reg.host()).TryLogin(t.Context(), Login{"user", "secret"}, StoreOptions{}); err == nil || len(err.Error()) > 2*maxForeignText {
			t.Errorf("%s: %.3000v", name, err)
		}
	}
	reg := newTestRegistry(t)
	held := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	reg.any.Store(&held)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := serverOf(t, reg.host()).TryLogin(ctx, Login{"user", "secret"}, StoreOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

func TestServerNamesEqualOtherTools(t *testing.T) {
	t.Parallel()
	const hub = "https://index.docker.io/v1/"
	for text, key := range map[string]string{
		"": hub, "docker.io": hub, "index.docker.io": hub, hub: hub, "ghcr.io": "ghcr.io", "https://ghcr.io/v2/": "ghcr.io", "localhost:5000": "localhost:5000", "[::1]:5000": "[::1]:5000",
	} {
		if s, err := ParseServer(text); err != nil || s.key() != key {
			t.Errorf("%q: %q, %v; want %q", text, s.key(), err, key)
		}
	}
	for _, bad := range []string{"a b", "user@ghcr.io", "ghcr.io\n", "\x1b[2J", "http://", strings.Repeat("a", maxServer+1)} {
		if s, err := ParseServer(bad); !errors.Is(err, ErrReference) {
			t.Errorf("%q: %q, %v", bad, s.key(), err)
		}
	}
	for _, bad := range []Login{{"", "x"}, {"x", ""}, {"a:b", "x"}, {"a\n", "x"}, {"a", "x\x00"}, {"a", strings.Repeat("x", maxLogin)}} {
		if err := bad.Check(); !errors.Is(err, ErrLogin) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}

// What docker's types don't know stays, in its place.
func TestStoredLoginsLeaveTheRest(t *testing.T) {
	const before = "{\n\t\"future\": {\"n\": 12345678901234567890},\n\t\"auths\": {\"other.example\": {\"auth\": \"bzp4\", \"email\": \"a@b\"}},\n\t\"psFormat\": \"table\"\n}"
	file := dockerDir(t, before)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	server := serverOf(t, "")
	kept, err := server.StoreLogin(Login{"user", "secret"})
	if err != nil || kept.File != file || kept.Helper != "" || kept.Shadowed != "" {
		t.Fatalf("%+v, %v", kept, err)
	}
	want := `"https://index.docker.io/v1/": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("user:secret")) + `"}`
	got := contentOf(t, file)
	for _, part := range []string{want, `"n": 12345678901234567890`, `"auth": "bzp4", "email": "a@b"`, `"psFormat": "table"`} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is missing in\n%s", part, got)
		}
	}
	if strings.Index(got, "future") > strings.Index(got, "auths") {
		t.Errorf("the order changed:\n%s", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, known := range []bool{true, false} {
		if was, err := server.RemoveLogin(); err != nil || was != known {
			t.Errorf("%t, %v; want %t", was, err, known)
		}
	}
	if got := contentOf(t, file); strings.Contains(got, "index.docker.io") || !strings.Contains(got, "other.example") {
		t.Errorf("after the logout:\n%s", got)
	}
}

func TestStoredLoginsMakeTheFile(t *testing.T) {
	for name, text := range map[string]string{"none": "", "empty": "\n", "without any": "{}", "null": `{"auths":null}`} {
		file := dockerDir(t, text)
		if text == "" {
			t.Setenv("DOCKER_CONFIG", filepath.Join(filepath.Dir(file), "deep", "er"))
			file = filepath.Join(filepath.Dir(file), "deep", "er", "config.json")
		}
		if _, err := serverOf(t, "ghcr.io").StoreLogin(Login{"user", "secret"}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := contentOf(t, file); !strings.Contains(got, `"ghcr.io"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, text := range map[string]string{"no JSON": "{", "a list": "[]", "more than JSON": "{} {}"} {
		file := dockerDir(t, text)
		if _, err := serverOf(t, "ghcr.io").StoreLogin(Login{"user", "secret"}); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if got := contentOf(t, file); got != text {
			t.Errorf("%s: changed to %s", name, got)
		}
	}
}

// A link is where somebody keeps their files: it stays one.
func TestStoredLoginsFollowTheUsersLink(t *testing.T) {
	file := dockerDir(t, "")
	real := filepath.Join(t.TempDir(), "real.json")
	mustWrite(t, real, []byte("{}"))
	if err := os.Symlink(real, file); err != nil {
		t.Fatal(err)
	}
	if _, err := serverOf(t, "ghcr.io").StoreLogin(Login{"user", "secret"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode().Type() != os.ModeSymlink || !strings.Contains(contentOf(t, real), "ghcr.io") {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestShadowedPodmanLoginsAreNamed(t *testing.T) {
	dockerDir(t, "")
	podman := filepath.Join(t.TempDir(), "auth.json")
	mustWrite(t, podman, []byte("{}"))
	t.Setenv("REGISTRY_AUTH_FILE", podman)
	for _, want := range []string{podman, ""} {
		if kept, err := serverOf(t, "ghcr.io").StoreLogin(Login{"user", want + "x"}); err != nil || kept.Shadowed != want {
			t.Errorf("%+v, %v; want %q", kept, err, want)
		}
	}
}

// helperScript speaks the protocol of docker-credential-helpers, with one file.
const helperScript = `#!/bin/sh
at="$0.store"
case "$1" in
store) cat > "$at" ;;
get) read -r url; [ -s "$at" ] || { echo "credentials not found in native keychain"; exit 1; }; cat "$at" ;;
erase) rm "$at" ;;
*) echo "no such $1"; exit 1 ;;
esac
`

// The helper of a registry has its credentials, that of the store all others', and the file none.
func TestCredentialHelpersKeepLogins(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"one", "all"} {
		if err := os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte(helperScript), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "1")}}, "app:v1")
	guarded(reg, true)
	file := dockerDir(t, fmt.Sprintf(`{"credsStore":"all","credHelpers":{%q:"one"}}`, reg.host()))
	for host, helper := range map[string]string{reg.host(): "one", "ghcr.io": "all"} {
		server := serverOf(t, host)
		kept, err := server.StoreLogin(Login{"user", "secret"})
		if err != nil || kept.Helper != helper {
			t.Fatalf("%+v, %v; want %s", kept, err, helper)
		}
		stored := filepath.Join(bin, "docker-credential-"+helper+".store")
		if got := contentOf(t, stored); !strings.Contains(got, `"Secret":"secret"`) || !strings.Contains(got, host) {
			t.Errorf("%s has %s", helper, got)
		}
		if got := contentOf(t, file); strings.Contains(got, "dXNlcjpzZWNyZXQ") || !strings.Contains(got, "credHelpers") {
			t.Errorf("the file has %s", got)
		}
		if host == reg.host() {
			mustResolve(t, openStore(t, StoreOptions{}), ref, Options{})
		}
		for _, known := range []bool{true, false} {
			if was, err := server.RemoveLogin(); err != nil || was != known {
				t.Errorf("%s: %t, %v; want %t", host, was, err, known)
			}
		}
		if _, err := os.Stat(stored); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s keeps it: %v", helper, err)
		}
	}
	dockerDir(t, `{"credsStore":"nosuch"}`)
	if _, err := serverOf(t, "ghcr.io").StoreLogin(Login{"user", "secret"}); err == nil || !strings.Contains(err.Error(), "docker-credential-nosuch") {
		t.Errorf("%v; want the helper named", err)
	}
}
