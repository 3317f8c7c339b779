package review_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// FuzzReview gives a review any bytes: it must end, and what it says must be printable.
func FuzzReview(f *testing.F) {
	for _, name := range []string{"apt", "dns-tcp", "tls-out-of-order", "ip-fragments", "dns-shapes", "http-proxy"} {
		b, err := os.ReadFile(filepath.Join(folder, name+".pcapng"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	p, err := policies.Parse("fuzz.toml", []byte("version = 1\n[egress]\ndefault = \"public\"\n[[egress.deny]]\nname = \"x\"\nhosts = [\"evil.example\"]\n"), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := review.Read(t.Context(), "fuzz", bytes.NewReader(b), review.Options{Policy: p, Against: policies.Default(), Learn: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows(false) {
			for _, cell := range row {
				for _, c := range cell {
					if c < ' ' || c == 0x7f {
						t.Fatalf("a terminal would act on %q", cell)
					}
				}
			}
		}
		if _, err := policies.Parse("learned.toml", r.Learned(), nil); err != nil {
			t.Fatalf("%v\n%s", err, r.Learned())
		}
	})
}
