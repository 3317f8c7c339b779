package review_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/pcapgen"
)

// TestI8_DecryptableCapturesHoldNoSecret has tshark decrypt the stored captures with the
// keys in them. Each request that a comment tells of must be readable, unless the case is odd on purpose; no
// secret's value may be in anything that tshark or the file have.
func TestI8_DecryptableCapturesHoldNoSecret(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	var owner []string // of each frame, in order
	for _, c := range pcapgen.Spoken() {
		file, err := os.ReadFile(filepath.Join(directory, c.Name+".pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(file)
		for range reviewed(t, &c, file).Packets {
			owner = append(owner, c.Name)
		}
	}
	path := filepath.Join(t.TempDir(), "all.pcapng")
	if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// A head whose body never comes is to be shown too.
	lines, _ := tshark(t, "-n", "-o", "http.desegment_body:FALSE", "-r", path, "-T", "fields", "-e", "_ws.col.Info")
	shown := map[string]string{}
	for i, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
		shown[owner[i]] += line + "\n"
	}
	for _, c := range pcapgen.Spoken() {
		file, err := os.ReadFile(filepath.Join(directory, c.Name+".pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range reviewed(t, &c, file).Requests {
			want := q.Method + " " + q.Path
			if q.Overrides != "" { // the method that was judged is in a field
				want = " " + q.Path
			}
			if !c.Odd && !strings.Contains(shown[c.Name], want) {
				t.Errorf("%s: tshark does not show %q; it shows\n%s", c.Name, want, shown[c.Name])
			}
		}
	}
	dump, _ := tshark(t, "-n", "-r", path, "-x")
	text := dumpText(dump)
	if !strings.Contains(text, "Authorization: Bearer tok_") {
		t.Fatal("tshark's dump shows no placeholder, so that it shows no value would say nothing")
	}
	for _, value := range pcapgen.Values() {
		for where, hay := range map[string]string{"a file": all.String(), "the decrypted bytes": text} {
			if strings.Contains(hay, value) {
				t.Errorf("%s holds the value %q", where, value)
			}
		}
	}
}
