package image

import (
	"errors"
	"net/http"
	"testing"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A proxy takes numbers for addresses, which nobody here would judge.
func TestI5_NumbersAreNoRegistrysHost(t *testing.T) {
	t.Parallel()
	went := errors.New("it goes out")
	transport := newRegistryTransport("registry.example", "https", &StoreOptions{
		transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, went }),
	})
	for host, want := range map[string]error{
		"registry.example": went, "r2.registry.example.": went, "8.8.8.8": went, "[2606:2800:21f::1]": went, "localhost": went,
		"2852039166": ErrAddress, "127.1": ErrAddress, "0xa9fe.43518": ErrAddress, "169.254.169.254.": ErrAddress,
		"0xa9fea9fe": ErrAddress, "0251.0376.0251.0376": ErrAddress, "169.254.169.254": ErrAddress, "[::ffff:169.254.169.254]": ErrAddress,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(req); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", host, err, want)
		}
	}
}
