package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// capturesDir holds captures that others commit; ping.pcapng has one flow that is denied.
var capturesDir = filepath.Join("..", "..", "testdata", "pcap")

// TestI12_OtherFilesAreNoCapture: alone it is an error with nothing on the standard output; beside a
// good capture, that is reviewed and the error stays.
func TestI12_OtherFilesAreNoCapture(t *testing.T) {
	t.Parallel()
	policy := write(t, "policy.toml", "version = 1\n")
	good := filepath.Join(capturesDir, "ping.pcapng")
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		say        []string
		shown      bool // what was readable is
	}{
		{"readme", filepath.Join("..", "..", "README.md"), []string{"README.md: at offset 0: not a capture", "name a pcap or pcapng file"}, false},
		{"short", write(t, "short.pcap", "ab"), []string{"short.pcap: at offset 0: not a capture", "name a pcap"}, false},
		{"empty", write(t, "empty.pcapng", ""), []string{"empty.pcapng: it is empty", "--pcap"}, false},
		{"directory", capturesDir, []string{"pcap: it is a directory", "DIR/*.pcapng*"}, false},
		{"missing", filepath.Join(t.TempDir(), "nosuch.pcapng"), []string{"nosuch.pcapng: no such file", "check its path"}, false},
		{"packed", write(t, "x.pcapng.gz", packed.String()), []string{"x.pcapng.gz: it is compressed", "unpack it"}, false},
		{"cut off", write(t, "cut.pcapng", string(whole[:len(whole)*2/3])), []string{"cut.pcapng: at offset ", "cut off", "what was readable is shown"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			alone := msb(t, nil, "review", "--policy", policy, tt.path)
			beside := msb(t, nil, "review", "--policy", policy, good, tt.path)
			for what, got := range map[string]result{"alone": alone, "beside a good one": beside} {
				if got.code != exitOther {
					t.Errorf("%s: exit %d, want %d", what, got.code, exitOther)
				}
				for _, want := range tt.say {
					if !strings.Contains(got.err, want) {
						t.Errorf("%s: said %q, want %q", what, got.err, want)
					}
				}
			}
			if shown := alone.out != ""; shown != tt.shown {
				t.Errorf("alone it printed %q", alone.out)
			}
			if !strings.Contains(beside.out, "45.33.32.156") || !strings.Contains(beside.out, "damaged: ") {
				t.Errorf("beside a good one it printed %q, want that reviewed and the damage named", beside.out)
			}
		})
	}
}

// TestReviewsExitByTheirCondition: a condition that holds is told first, a good capture is no error.
func TestReviewsExitByTheirCondition(t *testing.T) {
	t.Parallel()
	policy := write(t, "policy.toml", "version = 1\n")
	good := filepath.Join(capturesDir, "ping.pcapng")
	bad := write(t, "short.pcap", "ab")
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{good}, 0},
		{[]string{"--fail-on", "denied", good}, exitDenied},
		{[]string{"--fail-on", "unreadable", good}, 0},
		{[]string{"--fail-on", "unreadable", good, bad}, exitDenied},
		{[]string{"--fail-on", "allowed-private", good, bad}, exitOther},
	} {
		if got := msb(t, nil, append([]string{"review", "--policy", policy}, tt.args...)...); got.code != tt.code {
			t.Errorf("%q: exit %d, want %d: %s", tt.args, got.code, tt.code, got.err)
		}
	}
}

// TestI12_NoOptionWritesOverAnInput: a line with two names mixed up must not cost a policy or a capture.
func TestI12_NoOptionWritesOverAnInput(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(filepath.Join(capturesDir, "ping.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	capture := write(t, "ping.pcapng", string(whole))
	policy := write(t, "policy.toml", "version = 1\n")
	link := filepath.Join(t.TempDir(), "link.toml")
	if err := os.Symlink(policy, link); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	for _, args := range [][]string{
		{"review", "--policy", policy, "--html", capture, capture},
		{"review", "--policy", policy, "--learn", policy, capture},
		{"review", "--policy", policy, "--learn", link, capture},
		{"review", "--policy", policy, "--learn", fresh, "--html", fresh, capture},
		{"review", "--policy", policy, "--against", link, "--html", link, capture},
		{"run", "--policy", policy, "--audit", policy, "--", "true"},
		{"run", "--policy", policy, "--pcap", fresh, "--learn", fresh, "--", "true"},
		{"dns", "a.example", "--policy", policy, "--audit", policy},
		{"gateway", "--policy", policy, "--ca-out", policy, "--listen", "unix://" + filepath.Join(t.TempDir(), "s")},
		{"gateway", "--policy", policy, "--floor", link, "--learn", link, "--listen", "unix://" + filepath.Join(t.TempDir(), "s")},
	} {
		got := msb(t, nil, args...)
		if got.code != exitOther || !strings.Contains(got.err, "would write over the file of") {
			t.Errorf("%q: exit %d, want %d: %s", args, got.code, exitOther, got.err)
		}
	}
	for path, want := range map[string]string{capture: string(whole), policy: "version = 1\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what it was (%v)", path, err)
		}
	}
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("a refused line left a file: %v", err)
	}
	// The same output twice is fine where nothing can be lost, and so is one output for the next review.
	for range 2 {
		if got := msb(t, nil, "review", "--policy", policy, "--learn", fresh, capture); got.code != 0 {
			t.Errorf("exit %d: %s", got.code, got.err)
		}
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("what was learned: %v, %v", info, err)
	}
}

// TestI12_OutputsReplaceTheirKindOnly: a name mixed up must not cost a file that no option names either. The twin is a
// file that the option wrote itself.
func TestI12_OutputsReplaceTheirKindOnly(t *testing.T) {
	t.Parallel()
	policy, note := write(t, "policy.toml", "version = 1\n"), write(t, "note", "a note\n")
	capture := filepath.Join(capturesDir, "ping.pcapng")
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	for _, args := range [][]string{
		{"run", "--pcap", note, "--", "true"},
		{"run", "--audit", note, "--", "true"},
		{"run", "--learn", note, "--", "true"},
		{"create", "--pcap", note, "a"},
		{"review", "--policy", policy, "--html", note, capture},
		{"review", "--policy", policy, "--learn", note, capture},
		{"dns", "a.example", "--policy", policy, "--audit", note},
		{"gateway", "--policy", policy, "--ca-out", note, "--listen", socket},
		{"gateway", "--policy", policy, "--pcap", note, "--listen", socket},
	} {
		if got := msb(t, nil, args...); got.code != exitOther || !strings.Contains(got.err, "name another one, or remove it first") {
			t.Errorf("%q: exit %d, want %d: %s", args, got.code, exitOther, got.err)
		}
	}
	if got, err := os.ReadFile(note); err != nil || string(got) != "a note\n" {
		t.Errorf("%s is %q (%v)", note, got, err)
	}
	page, log := filepath.Join(t.TempDir(), "page"), filepath.Join(t.TempDir(), "log")
	for range 2 {
		if got := msb(t, nil, "review", "--policy", policy, "--html", page, capture); got.code != 0 {
			t.Errorf("a page twice: exit %d: %s", got.code, got.err)
		}
		if got := msb(t, nil, "dns", "a.example", "--policy", policy, "--audit", log); got.code != exitDenied {
			t.Errorf("a log twice: exit %d: %s", got.code, got.err)
		}
	}
}

// TestI12_EmptyComparisonsFail: other tools' captures hold no verdicts, so that none could differ.
func TestI12_EmptyComparisonsFail(t *testing.T) {
	capture := filepath.Join(capturesDir, "addr-private.pcapng")
	public := write(t, "public.toml", "version = 1\n[egress]\ndefault = \"public\"\n")
	for _, args := range [][]string{{"--changed"}, {"--fail-on", "loosened"}, {"--fail-on", "denied,changed"}} {
		got := msb(t, nil, append(append([]string{"review", "--policy", public}, args...), capture)...)
		if got.code != exitOther || !strings.Contains(got.err, "--against") {
			t.Errorf("%v: exit %d, said %q", args, got.code, got.err)
		}
	}
	if got := msb(t, nil, "review", "--policy", public, "--against", public, "--fail-on", "changed", capture); got.code != 0 {
		t.Errorf("with another policy: %+v", got)
	}
	floor := write(t, "floor.toml", "version = 1\n")
	if got := msb(t, nil, "review", "--policy", public, "--floor", floor, "--against", public, "--fail-on", "denied", capture); got.code != exitDenied {
		t.Errorf("under a floor: %+v", got)
	}
}
