package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// TestErrorsSayTheirKind, each class by its own sentence, and the next step.
func TestErrorsSayTheirKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, "the sandbox's files: permission denied"},
		{&fs.PathError{Op: "open", Path: "/x", Err: errBoom}, "the sandbox can't do this with its files"},
		{fmt.Errorf("x: %w", sandbox.ErrDirectory), "a directory that the operator shares can't be shared now"},
		{fmt.Errorf("x: %w", agentclient.ErrRefused), "the sandbox refused it"},
		{fmt.Errorf("x: %w", sandbox.ErrBusy), "the sandbox takes no more for now"},
		{fmt.Errorf("x: %w", agentclient.ErrTimeout), "the sandbox did not answer in time"},
		{fmt.Errorf("x: %w", agentclient.ErrAgentDead), "the sandbox ended, or does not answer"},
		{fmt.Errorf("x: %w", syscall.ENOSPC), "there is no space left"},
		{errBoom, "the call failed"},
	} {
		if got := plainly(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
		if text := sentence(c.err); !strings.HasPrefix(text, c.want+"\n[untrusted sandbox output ") {
			t.Errorf("%v: %q", c.err, text)
		}
	}
	for argv, want := range map[string]string{
		"ls -l": "argv has one element with blanks", "ls\t-l": "argv has one element with blanks", "ls": "check_installed says", "a b|c": "check_installed says",
	} {
		st := &sandbox.ExitStatus{Code: 127, StartError: agentclient.NotFound}
		if got := notStarted(st, "", strings.Split(argv, "|")); !strings.Contains(got, want) || strings.Contains(got, "check_installed") != strings.HasPrefix(want, "check") {
			t.Errorf("%q: %q", argv, got)
		}
	}
	if got := notStarted(&sandbox.ExitStatus{Code: 127, StartError: agentclient.NotFound}, "/nosuch", []string{"ls"}); strings.Contains(got, "check_installed") { // it may be the directory
		t.Error(got)
	}
	if got := notStarted(&sandbox.ExitStatus{Code: 126, StartError: agentclient.NotFound + 1}, "", []string{"ls"}); strings.Contains(got, "check_installed") {
		t.Error(got)
	}
}

// connecting is a runner that fails to connect to what runs.
type connecting struct{ *fakeRunner }

func (connecting) connect(context.Context, *sandbox.Status) (machine, error) { return nil, errBoom }

// TestOtherFaultsAreNoTimeouts: a sandbox that answers at once, with a fault, is not said to be slow.
func TestOtherFaultsAreNoTimeouts(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "a"})
	dir := filepath.Join(p.opts.Home.Dir(), "sandboxes", "a")
	l, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nobody accepts
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"started":"2026-01-01T00:00:00Z","info":{"id":"x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.runner = connecting{p.fake}
	if text := p.says(t, true, "sandbox_exec", m{"sandbox": "a", "command": "x"}, "boom"); strings.Contains(text, "did not answer within") {
		t.Error(text)
	}
}

// given is a job that takes this much of what it is given.
type given struct {
	take int
	err  error
	got  *string
}

func (g given) Write(_ context.Context, p []byte, eof bool) (int, error) {
	*g.got = fmt.Sprintf("%s %v", p, eof)
	return min(len(p), g.take), g.err
}

// TestJobsTakeTextOrItsEnd, one of both at least, and what they don't take is said.
func TestJobsTakeTextOrItsEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data      string
		eof       bool
		take      int
		err       error
		got, want string
		failed    bool
	}{
		{"", false, 9, nil, "", "give the text", true},
		{"", true, 9, nil, " true", "the job took 0 bytes and the end of its input; the action logs", false},
		{"abc", false, 9, nil, "abc false", "the job took 3 bytes; the action logs", false},
		{"abc", true, 9, nil, "abc true", "the job took 3 bytes and the end of its input; ", false},
		{"abc", false, 2, sandbox.ErrBusy, "abc false", "it has 2 of these 3 bytes, send the rest later", true},
		{"abc", false, 2, errBoom, "abc false", "boom", true},
	} {
		got := ""
		text, err := jobInput(t.Context(), given{c.take, c.err, &got}, c.data, c.eof)
		if err != nil {
			text = err.Error()
		}
		if (err != nil) != c.failed || got != c.got || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q, got %q", c, text, got)
		}
	}
}

// TestNumbersAreWholeOrNot as JSON has them written.
func TestNumbersAreWholeOrNot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1": "integer", "-0": "integer", "9007199254740993": "integer", "1.0": "number", "1.5": "number", "1e3": "number", "1E3": "number", "1e400": "number",
		`"1"`: "string", "true": "boolean", "null": "null", "[]": "array", "{}": "object",
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if got := kindOf(v); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "x", "timeout": 1})
	p.says(t, false, "sandbox_exec", m{"command": "x", "timeout": 1.5})
	p.says(t, true, "sandbox_create", m{"name": "x", "cpus": 1.5}, "cpus is a JSON number 1.5, and has to be a whole number")
	p.says(t, true, "sandbox_exec", m{"argv": "ls -l"}, "a shell line is for command")
	p.says(t, true, "sandbox_exec", m{"argv": 1}, "argv is a JSON number 1, and has to be an array")
}

// TestDestinationsAreHostsAndPorts.
func TestDestinationsAreHostsAndPorts(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"a.example": "a.example 0", "a.example:1": "a.example 1", "a.example:65535": "a.example 65535", "[2001:db8::1]:8": "2001:db8::1 8",
		"a.example:0": "", "a.example:65536": "", "a.example:x": "", "a.example:-1": "", "": "", ":443": "", "https://a.example": "", "a.example/x": "",
	} {
		host, port, err := requested(to)
		got := ""
		if err == nil {
			got = fmt.Sprint(host, " ", port)
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", to, got, err, want)
		}
	}
	p := serve(t, nil)
	for path, failed := range map[string]bool{"": false, "/": false, "/x": false, "*": false, "x": true, "*x": true} {
		p.says(t, failed, "network", m{"action": "explain", "to": "a.example:443", "path": path})
	}
	for name, ok := range map[string]bool{"A": true, "": false, "A=": false, "A B": false, "A\tB": false, "A\n": false, "A\r": false, "A\x00": false} {
		if _, err := (&program{Env: map[string]string{name: "x"}}).environ(); (err == nil) != ok {
			t.Errorf("variable %q: %v", name, err)
		}
	}
}

// TestCutCharactersGo from either end of what goes on elsewhere, and nothing else does.
func TestCutCharactersGo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // without its cut end, and without its cut beginning
		"": {"", ""}, "a": {"a", "a"}, "é": {"é", "é"}, "a\xc3": {"a", "a\xc3"}, "a\xe2\x82": {"a", "a\xe2\x82"}, "a\xf0\x9f\x98": {"a", "a\xf0\x9f\x98"},
		"\xa9a": {"\xa9a", "a"}, "\x82\xaca": {"\x82\xaca", "a"}, "\x9f\x98\x80a": {"\x9f\x98\x80a", "a"}, "\x80\x80\x80\x80": {"\x80\x80\x80\x80", "\x80"},
		"\xc3": {"", "\xc3"}, "\x80": {"\x80", ""}, "a\xff": {"a\xff", "a\xff"}, "€": {"€", "€"},
	} {
		if got := [2]string{string(trimEnd([]byte(text))), string(trimStart([]byte(text)))}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestQuietLogsStayQuiet: what go-sdk says of sessions is left out, and a log that takes no warnings gets none.
func TestQuietLogsStayQuiet(t *testing.T) {
	t.Parallel()
	at := func(l slog.Level) slog.Handler {
		return warnings{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: l})}
	}
	for _, c := range []struct {
		log, line slog.Level
		want      bool
	}{
		{slog.LevelDebug, slog.LevelInfo, false}, {slog.LevelDebug, slog.LevelWarn, true}, {slog.LevelDebug, slog.LevelError, true},
		{slog.LevelError, slog.LevelWarn, false}, {slog.LevelError, slog.LevelError, true},
	} {
		for _, h := range []slog.Handler{at(c.log), at(c.log).WithGroup("g"), at(c.log).WithAttrs(nil)} {
			if got := h.Enabled(t.Context(), c.line); got != c.want {
				t.Errorf("a log of %v, a line of %v: %v", c.log, c.line, got)
			}
		}
	}
	for n, cut := range map[int]bool{maxLogLine - 1: false, maxLogLine: false, maxLogLine + 1: true} {
		if got := cutLine([]byte(strings.Repeat("x", n))); len(got) > maxLogLine || strings.HasSuffix(string(got), "…\n") != cut {
			t.Errorf("a line of %d bytes: %d", n, len(got))
		}
	}
}

// TestCachedImagesAreListedOnce, at most 50, and none that names files of the host.
func TestCachedImagesAreListedOnce(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) {
		o.Images = []string{"own.example/x:1"}
		o.Floor = policy(t, "[sandbox]\nimage = \"own.example/x:1\"\n")
	})
	refs := filepath.Join(p.opts.Home.Images(), "refs")
	made, err := filepath.Glob(filepath.Join(refs, "*.json"))
	if err != nil || len(made) != 1 {
		t.Fatalf("%q, %v", made, err)
	}
	text, err := os.ReadFile(made[0])
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"dir:/srv/private", "oci:/srv/other"}
	for i := range maxImages + 5 {
		names = append(names, fmt.Sprintf("z.example/x:%d", i))
	}
	for _, name := range names {
		ref := strings.Replace(string(text), `"builtin"`, `"`+name+`"`, 1)
		if err := os.WriteFile(filepath.Join(refs, digest([]byte(name))+digest([]byte(name+"x"))+".json"), []byte(ref), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.opts.images()
	if err != nil || len(got.Cached) != maxImages || got.Cached[0] != sandbox.DefaultImage || strings.Count(fmt.Sprint(got.Cached), sandbox.DefaultImage) != 1 || strings.Contains(fmt.Sprint(got), "/srv") ||
		len(got.Pullable) != 1 || !strings.Contains(fmt.Sprint(got.Cached), "z.example") {
		t.Errorf("%+v, %v", got, err)
	}
	for n, want := range map[int]int{0: 1, 1: 1, maxImages: maxImages, maxImages + 1: maxImages} {
		if got := strings.Count(printedList(make([]string, n)), ",") + 1; got != want {
			t.Errorf("%d of %d names are said", got, n)
		}
	}
}

// TestAdviceFitsTheFault: what is hidden is spoken of only where something may be, and for faults that it explains.
func TestAdviceFitsTheFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, hide := range []bool{false, true} {
		p := serve(t, func(o *Options) {
			o.Directories, o.HideCredentials = []sandbox.Directory{{Host: dir, Guest: "/work"}}, hide
		})
		p.says(t, false, "sandbox_create", m{"name": "a"})
		for _, c := range []struct {
			path string
			err  error
			want bool
		}{
			{"/work/x", fs.ErrNotExist, true}, {"/work/x", fs.ErrPermission, true}, {"/work/x", syscall.EISDIR, false}, {"/etc/x", fs.ErrNotExist, false},
		} {
			err := p.advise("a", &fs.PathError{Op: "open", Path: c.path, Err: c.err})
			if got := strings.Contains(sentence(err), "the operator hides it"); got != (c.want && hide) {
				t.Errorf("hide %v, %s, %v: %s", hide, c.path, c.err, sentence(err))
			}
		}
	}
	began := time.Now().Add(-time.Hour)
	st := sandbox.Status{}
	st.Started, st.Lifetime = &began, time.Hour
	over := outlived(&st)
	st.Lifetime = 2 * time.Hour
	not := outlived(&st)
	st.Lifetime = 0
	if none := outlived(&st); over != "1h0m0s" || not != "" || none != "" {
		t.Errorf("%q, %q, %q", over, not, none)
	}
	st.Started, st.Lifetime = nil, time.Hour
	for kind, want := range map[sandbox.Kind]string{sandbox.KindLifetime: "1h0m0s", sandbox.KindIdle: ""} {
		st.End = &sandbox.End{Kind: kind}
		if got := outlived(&st); got != want {
			t.Errorf("ended by %s: %q", kind, got)
		}
	}
	var failed *toolFailure
	if err := serve(t, nil).advise("default", &toolFailure{text: "x"}); !errors.As(err, &failed) || failed.text != "x" {
		t.Errorf("%v", err)
	}
}
