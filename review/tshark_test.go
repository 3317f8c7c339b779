package review_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/pcapgen"
)

// tshark runs it, which `scripts/setup --test` installs.
func tshark(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, complaints strings.Builder
	c := exec.CommandContext(t.Context(), "tshark", args...)
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		t.Fatalf("tshark %q: %v\n%s", args, err, complaints.String())
	}
	var lines []string
	for line := range strings.Lines(complaints.String()) {
		if !strings.HasPrefix(line, "Running as user \"root\"") {
			lines = append(lines, line)
		}
	}
	return out.String(), strings.Join(lines, "")
}

// TestTsharkReadsEveryCapture gives tshark all captures as sections of one file: it takes a quarter of a
// second to start.
func TestTsharkReadsEveryCapture(t *testing.T) {
	t.Parallel()
	for _, odd := range []bool{false, true} {
		var all bytes.Buffer
		var owner []string // of each frame, in order
		for _, c := range pcapgen.All() {
			if c.Odd != odd {
				continue
			}
			file, err := os.ReadFile(filepath.Join(directory, c.Name+".pcapng"))
			if err != nil {
				t.Fatal(err)
			}
			all.Write(file)
			r := reviewed(t, &c, file)
			for range r.Packets {
				owner = append(owner, c.Name)
			}
		}
		path := filepath.Join(t.TempDir(), "all.pcapng")
		if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		// Malformed packets, and what tshark calls an error; a reset or a retransmission is neither.
		lines, complaints := tshark(t, "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-e", "_ws.malformed", "-e", "_ws.expert.severity", "-e", "_ws.expert.message")
		if complaints != "" {
			t.Errorf("tshark says %s", complaints)
		}
		frames := strings.Split(strings.TrimSuffix(lines, "\n"), "\n")
		if len(frames) != len(owner) {
			t.Fatalf("tshark reads %d frames, the captures have %d", len(frames), len(owner))
		}
		for i, line := range frames {
			field := strings.SplitN(line, "\t", 4)
			if !odd && (field[1] != "" || strings.Contains(field[2], expertError)) {
				t.Errorf("%s is not meant to be malformed, but tshark says %q", owner[i], field[3])
			}
		}
	}
}

// expertError is PI_ERROR of Wireshark's epan/proto.h, as tshark prints severities.
const expertError = "8388608"
