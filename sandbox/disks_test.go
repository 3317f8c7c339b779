package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
)

// TestI15_PolicyImagesArePublicUnlessTrusted: an image that a policy names comes from a public address and without the user's
// logins, unless the user trusts the policy with them. Nothing listens at the registry's address.
func TestI15_PolicyImagesArePublicUnlessTrusted(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, tt := range []struct{ policys, credentials, public bool }{
		{true, false, true}, {true, true, false}, {false, false, false}, {false, true, false},
	} {
		cfg := Config{Image: "127.0.0.1:1/x:1", PolicyImage: tt.policys, Policy: policies.Default()}
		_, err := resolve(t.Context(), h, &cfg, &Admission{Credentials: tt.credentials})
		if refused := errors.Is(err, image.ErrAddress); err == nil || refused != tt.public || strings.Contains(err.Error(), "msb policy trust") != tt.public {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
