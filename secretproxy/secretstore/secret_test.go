package secretstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/policies"
)

const value = "s3cret-value-for-tests"

func TestI8_SecretNeverPrintsItself(t *testing.T) {
	t.Parallel()
	s := New([]byte(value))
	wrapped := struct {
		Name  string
		Token Secret
		Ptr   *Secret
	}{"n", s, &s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", wrapped)
		fmt.Fprintf(&out, verb+"\n", []Secret{s})
	}
	encoded, err := json.Marshal(wrapped)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	keyed, err := json.Marshal(map[string]any{"k": s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(keyed)
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("m", "s", s, "w", wrapped, "err", fmt.Errorf("bad %v", s))
	}
	text := strings.ToLower(out.String())
	if strings.Contains(text, value) || strings.Contains(text, fmt.Sprintf("%x", value)) {
		t.Errorf("the value is in %s", out.String())
	}
}

func TestI8_CloseWipesEveryCopy(t *testing.T) {
	t.Parallel()
	raw := []byte(value)
	s := New(raw)
	other := s
	other.Close()
	if s.Len() != 0 || len(s.Reveal()) != 0 || bytes.ContainsAny(raw, "abcdefghijklmnopqrstuvwxyz") {
		t.Errorf("after Close: %d bytes, memory %q", s.Len(), raw)
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(value+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	header := []policies.Place{{Kind: policies.InHeader, Name: "Authorization"}}
	body := []policies.Place{{Kind: policies.InBody}}
	cases := []struct {
		name string
		from policies.Source
		in   []policies.Place
		want string // the value, or a part of the error
		ok   bool
	}{
		{"environment", policies.Source{Kind: policies.FromEnv, Value: "GOOD"}, header, value, true},
		{"unset", policies.Source{Kind: policies.FromEnv, Value: "NONE"}, header, "export it", false},
		{"short", policies.Source{Kind: policies.FromEnv, Value: "SHORT"}, header, "use a longer value", false},
		{"one byte", policies.Source{Kind: policies.FromEnv, Value: "ONE"}, header, "use a longer value", false},
		{"empty", policies.Source{Kind: policies.FromEnv, Value: "EMPTY"}, header, "gave nothing", false},
		{"newline in a header", policies.Source{Kind: policies.FromEnv, Value: "LINES"}, header, "line break", false},
		{"newline in a body", policies.Source{Kind: policies.FromEnv, Value: "LINES"}, body, "line one\nline two", true},
		{"regex and quotes", policies.Source{Kind: policies.FromEnv, Value: "ODD"}, header, `a.*"'[\](){}$^`, true},
		{"huge", policies.Source{Kind: policies.FromEnv, Value: "HUGE"}, header, "longer than", false},
		{"blanks around", policies.Source{Kind: policies.FromEnv, Value: "BLANK"}, header, "white space", false},
		{"file", policies.Source{Kind: policies.FromFile, Value: file}, header, value, true},
		{"no file", policies.Source{Kind: policies.FromFile, Value: file + "x"}, header, "no such file", false},
		{"command", policies.Source{Kind: policies.FromCommand, Argv: []string{"printf", "%s\\n", value}}, header, value, true},
		{"failing command", policies.Source{Kind: policies.FromCommand, Argv: []string{"sh", "-c", "echo " + value + " >&2; exit 3"}}, header, "run it by hand", false},
		{"unknown command", policies.Source{Kind: policies.FromCommand, Argv: []string{"/no/such/command"}}, header, "/no/such/command", false},
		{"no argv", policies.Source{Kind: policies.FromCommand}, header, "empty", false},
		{"none", policies.Source{}, header, "no source", false},
	}
	env := map[string]string{
		"GOOD": value, "SHORT": "1234567", "ONE": "x", "EMPTY": "", "LINES": "line one\nline two",
		"ODD": `a.*"'[\](){}$^`, "HUGE": strings.Repeat("x", MaxLength+1), "BLANK": " " + value,
	}
	for _, c := range cases {
		holders, err := open(context.Background(), []policies.Secret{{Name: "S", From: c.from, In: c.in}}, testReader(env, time.Now))
		switch {
		case c.ok && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.ok:
			got, _ := holders[0].Current(context.Background())
			if string(got.Reveal()) != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got.Reveal(), c.want)
			}
			holders[0].Close()
		case !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "secret S"):
			t.Errorf("%s: got %v, want an error about %q", c.name, err, c.want)
		case strings.Contains(err.Error(), value):
			t.Errorf("%s: the value is in the error", c.name)
		}
	}
}

func testReader(env map[string]string, now func() time.Time) reader {
	return reader{
		lookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		environ:   func() []string { return append(os.Environ(), "GOOD="+value, "OTHER=1") },
		now:       now,
	}
}

func TestI8_ChildrenDoNotInheritSources(t *testing.T) {
	t.Parallel()
	secrets := []policies.Secret{
		{Name: "A", From: policies.Source{Kind: policies.FromEnv, Value: "GOOD"}},
		{Name: "B", From: policies.Source{Kind: policies.FromCommand, Argv: []string{"sh", "-c", `echo "value-is-${GOOD:-absent}-$OTHER"`}}},
	}
	holders, err := open(context.Background(), secrets, testReader(map[string]string{"GOOD": value}, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := holders[1].Current(context.Background())
	if string(got.Reveal()) != "value-is-absent-1" {
		t.Errorf("the child's environment gave %q", got.Reveal())
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := func() time.Time { return now }
	file := filepath.Join(t.TempDir(), "token")
	counter := filepath.Join(t.TempDir(), "count")
	write := func(v string) {
		if err := os.WriteFile(file+".new", []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(value + "-1")
	script := []string{"sh", "-c", `echo x >> "$0"; echo "command-value-$(wc -l < "$0" | tr -d ' ')"`, counter}
	secrets := []policies.Secret{
		{Name: "FILE", From: policies.Source{Kind: policies.FromFile, Value: file}},
		{Name: "TTL", From: policies.Source{Kind: policies.FromCommand, Argv: script, TTL: time.Minute}},
		{Name: "FOREVER", From: policies.Source{Kind: policies.FromCommand, Argv: script, RefreshOn401: true}},
		{Name: "UNASKED", From: policies.Source{Kind: policies.FromCommand, Argv: script}},
	}
	holders, err := open(context.Background(), secrets, testReader(nil, clock))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(i int, want string) {
		t.Helper()
		got, err := holders[i].Current(context.Background())
		if err != nil || string(got.Reveal()) != want {
			t.Errorf("%s: got %q, %v; want %q", secrets[i].Name, got.Reveal(), err, want)
		}
	}
	expect(0, value+"-1")
	expect(1, "command-value-1")
	expect(2, "command-value-2")
	expect(3, "command-value-3")
	write(value + "-2")
	now = now.Add(2 * fileCheckEvery)
	expect(0, value+"-2")
	expect(1, "command-value-1")
	now = now.Add(time.Minute)
	expect(1, "command-value-4")
	expect(2, "command-value-2")
	for range 2 { // at once again: bounded
		holders[2].Refused()
		expect(2, "command-value-5")
	}
	holders[3].Refused()
	expect(3, "command-value-3")
	write("short")
	now = now.Add(2 * fileCheckEvery)
	if got, err := holders[0].Current(context.Background()); !errors.Is(err, ErrValue) || string(got.Reveal()) != value+"-2" {
		t.Errorf("after a bad rotation: %q, %v; want the last good value and an error", got.Reveal(), err)
	}
	for _, h := range holders {
		h.Close()
		if got, _ := h.Current(context.Background()); got.Len() != 0 {
			t.Error("a value is left after Close")
		}
	}
}

// A rotated file that can't be read for a moment, here since this process may open none, is read later.
func TestRotatedFilesAreReadAgain(t *testing.T) { // not in parallel: the limit is the process's
	now := time.Now()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(value+"-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := []policies.Secret{{Name: "S", From: policies.Source{Kind: policies.FromFile, Value: file}}}
	holders, err := open(context.Background(), secrets, testReader(nil, func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	defer holders[0].Close()
	if err := os.WriteFile(file, []byte(value+"-22"), 0o600); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * fileCheckEvery)
	got, failed := holders[0].Current(context.Background())
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if failed == nil || string(got.Reveal()) != value+"-1" {
		t.Errorf("without a descriptor: %q, %v; want the last value and an error", got.Reveal(), failed)
	}
	now = now.Add(2 * fileCheckEvery)
	if got, err := holders[0].Current(context.Background()); err != nil || string(got.Reveal()) != value+"-22" {
		t.Errorf("afterwards: %q, %v; want the new value", got.Reveal(), err)
	}
}

func TestLooseModeIsWarnedAbout(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := []policies.Secret{{Name: "S", From: policies.Source{Kind: policies.FromFile, Value: file}}}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o644: "chmod 600"} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		holders, err := Open(context.Background(), secrets, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if got := holders[0].LooseMode(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("mode %v: %q", mode, got)
		}
	}
}
