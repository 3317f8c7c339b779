package image

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

func TestPlainHTTPIsForLocalRegistries(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"localhost:5000/a":    "http",
		"127.0.0.1:5000/a":    "http",
		"[::1]:5000/a":        "http",
		"10.0.0.5:5000/a":     "https",
		"192.168.1.5:5000/a":  "https",
		"172.16.0.5:5000/a":   "https",
		"registry.local/a":    "https",
		"registry.example/a":  "https",
		"localhost.example/a": "https",
	} {
		r, err := name.ParseReference(ref)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		if got := schemeOf(r.Context().Registry); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
}
