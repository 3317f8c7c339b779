package image

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

func TestShortNamesMeanTheSame(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		name.DefaultRegistry + "/library/alpine:3.20":      "alpine:3.20",
		name.DefaultRegistry + "/grafana/grafana:11":       "grafana/grafana:11",
		name.DefaultRegistry + "/library/host.example/x:1": name.DefaultRegistry + "/library/host.example/x:1", // short, it is another registry's
		name.DefaultRegistry + "/localhost/x:1":            name.DefaultRegistry + "/localhost/x:1",
		"registry.example/library/alpine:3.20":             "registry.example/library/alpine:3.20",
		"library/alpine:3.20":                              "library/alpine:3.20",
		"oci:/images/alpine":                               "oci:/images/alpine",
		"":                                                 "",
	} {
		if got := ShortName(ref); got != want {
			t.Errorf("%q is %q, want %q", ref, got, want)
		}
	}
}
