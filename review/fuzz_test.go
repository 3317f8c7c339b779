package review_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

const (
	// maxFuzzed bounds an input: what a review does is done by a few packets, and a long input takes the time
	// of many.
	maxFuzzed = 32 << 10
	// maxLearned bounds the learned policies that are known to be good: most inputs teach the same ones, and
	// parsing them was a third of the time.
	maxLearned = 1024
)

// FuzzReview gives a review any bytes: it must end, and what it says must be printable.
func FuzzReview(f *testing.F) {
	for _, name := range []string{"apt", "dns-tcp", "tls-out-of-order", "ip-fragments", "dns-shapes", "http-second-request"} {
		b, err := os.ReadFile(filepath.Join(directory, name+".pcapng"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	p, err := policies.Parse("fuzz.toml", []byte("version = 1\n[egress]\ndefault = \"public\"\n"+
		"[[egress.deny]]\nname = \"x\"\nhosts = [\"evil.example\"]\n"+
		"[[egress.allow]]\nname = \"clear\"\nhosts = [\"good.example\", \"deb.debian.org\"]\nprotocol = \"http\"\nports = [80]\npaths = [\"/repos/**\"]\n"), nil)
	if err != nil {
		f.Fatal(err)
	}
	o := review.Options{Policy: p, Against: policies.Default(), Learn: true}
	good := map[string]bool{}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxFuzzed {
			return
		}
		r, err := review.Read(t.Context(), "fuzz", bytes.NewReader(b), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows(false) {
			for _, cell := range row {
				printable(t, cell)
			}
		}
		for _, line := range r.Summary() {
			printable(t, line)
		}
		learned := r.Learned()
		if good[string(learned)] {
			return
		}
		if _, err := policies.Parse("learned.toml", learned, nil); err != nil {
			t.Fatalf("%v\n%s", err, learned)
		}
		if len(good) < maxLearned {
			good[string(learned)] = true
		}
	})
}

// printable holds that a terminal shows text and does not act on it.
func printable(t *testing.T, text string) {
	for _, c := range text {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c >= 0x202a && c <= 0x202e {
			t.Fatalf("a terminal would act on %q", text)
		}
	}
}
