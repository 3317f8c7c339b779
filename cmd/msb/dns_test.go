package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestI1_DNSCommandIsAudited: the command asks as a guest does, and its verdicts are lines as a guest's are. Nothing is
// sent: no rule allows the name.
func TestI1_DNSCommandIsAudited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "p.toml"), filepath.Join(dir, "audit.jsonl")
	if err := os.WriteFile(policy, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is appended
		if got := msb(t, nil, "dns", "evil.example", "--policy", policy, "--audit", log); got.code != exitDenied {
			t.Fatalf("exit %d, want %d: %s", got.code, exitDenied, got.err)
		}
	}
	var seen []audit.Event
	tail := audit.NewTail(log)
	err := tail.Next(func(_ []byte, ev *audit.Event) error { seen = append(seen, *ev); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 {
		t.Fatalf("%d lines, want 2: %+v", len(seen), seen)
	}
	for _, ev := range seen {
		if ev.Kind != audit.DNSQuery || ev.Action != "deny" || ev.Reason != "no_rule" || ev.DNS == nil || ev.DNS.Name != "evil.example" || ev.Sandbox != "dns" {
			t.Errorf("%+v", ev)
		}
	}
	if got := msb(t, nil, "dns", "evil.example", "--policy", policy, "--audit", dir); got.code != exitOther || got.out != "" {
		t.Errorf("a log that can't be opened: exit %d, printed %q", got.code, got.out)
	}
	if got := msb(t, nil, "dns", "evil.example", "--policy", policy, "--audit", "/dev/full"); got.code != exitNoSpace || got.err == "" {
		t.Errorf("a log that can't be written: exit %d, said %q", got.code, got.err)
	}
}
