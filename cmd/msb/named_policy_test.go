package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Verbs that ask something of a policy take a sandbox or a preset by its name, as well as a file.
func TestPolicyArgumentsNameAnything(t *testing.T) {
	t.Parallel()
	env, _ := loggedSandbox(t, "web")
	file := write(t, "p.toml", "version = 1\n[hosts]\n\"a.internal.example\" = \"builtin:echo\"\n")
	if got := msb(t, env, "create", "-q", "--disk", "64M", "--policy", file, "mapped"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, tt := range []struct {
		args string
		code int
		say  string
	}{
		{"policy explain pypi --to pypi.org:443", 0, "pypi.org"},
		{"policy explain web --to pypi.org:443", exitDenied, "no allow rule"},
		{"policy explain nosuch --to pypi.org:443", exitPolicyMissing, "nosuch"},
		{"policy diff web pypi", exitDiffers, "pypi.org"},
		{"policy check pypi web", 0, "ok"},
		{"dns a.internal.example --policy mapped", 0, "198.18."},
		{"dns a.internal.example --policy web", exitDenied, "name refused"},
		{"dns evil.example --policy pypi", exitDenied, "name refused"},
	} {
		if got := msb(t, env, strings.Fields(tt.args)...); got.code != tt.code || !strings.Contains(got.out+got.err, tt.say) {
			t.Errorf("%s: %+v, want exit %d and %q", tt.args, got, tt.code, tt.say)
		}
	}

	// Its file is gone: the start says which, and what to do.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"start mapped", "policy show mapped", "policy explain mapped --to a.example:443"} {
		got := msb(t, env, strings.Fields(args)...)
		for _, say := range []string{file, "put it back", "msb rm mapped"} {
			if got.code != exitPolicyMissing || !strings.Contains(got.err, say) {
				t.Errorf("%s: %+v, want %q", args, got, say)
			}
		}
	}
}

// What is no tar archive is named before anything is sent.
func TestI12_StdinCopiesNeedTar(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, say string }{
		"empty": {"", "no tar archive"}, "text": {"hello", "no tar archive"}, "long": {strings.Repeat("hello ", 1000), "no tar archive"},
		"gzip": {"\x1f\x8b\x08rest", "gunzip -c"}, "xz": {"\xfd7zXZ\x00", "unxz -c"},
		"an archive": {string(make([]byte, 1024)), "no such sandbox"}, // it comes to the name
	} {
		cmd := command(t, nil, "cp", "-", "nosuch:/root")
		cmd.Stdin = bytes.NewReader([]byte(tt.in))
		if got := finish(t, cmd); got.code == 0 || !strings.Contains(got.err, tt.say) {
			t.Errorf("%s: %+v, want %q", name, got, tt.say)
		}
	}
}
