package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestPortsOfStoppedSandboxesChange: what is added holds at the next start, and what is removed does not.
func TestPortsOfStoppedSandboxesChange(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	one, other := Port{Host: 8080, Guest: 80}, Port{Guest: 81}
	for _, p := range []Port{one, other} {
		if added, err := h.Ports().Add(t.Context(), "web", p); err != nil || added != p {
			t.Errorf("%v is added as %v, %v", p, added, err)
		}
	}
	if _, err := h.Ports().Add(t.Context(), "web", Port{Host: 8080, Guest: 90}); !errors.Is(err, ErrPort) {
		t.Errorf("a port twice: %v", err)
	}
	there := func(want ...Port) {
		t.Helper()
		if got, err := h.Ports().List("web"); err != nil || !slices.Equal(got, want) {
			t.Errorf("the ports are %v, %v; want %v", got, err, want)
		}
	}
	there(one, other)
	if removed, err := h.Ports().Remove(t.Context(), "web", Port{Guest: 80}); err != nil || !slices.Equal(removed, []Port{one}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	there(other)
	if _, err := h.Ports().Remove(t.Context(), "web", Port{Host: 8080, Guest: 80}); !errors.Is(err, ErrPort) || !strings.Contains(err.Error(), ": 8080:80 is not published; `msb port ls web` ") {
		t.Errorf("removed once more: %v", err)
	}
	if _, err := h.Ports().Add(t.Context(), "none", one); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("of no sandbox: %v", err)
	}
}

// TestI15_PortsOfStoppedSandboxesNeedTheFloor, as those of running ones do. The twin's floor admits clients.
func TestI15_PortsOfStoppedSandboxesNeedTheFloor(t *testing.T) {
	t.Parallel()
	for floor, want := range map[string]error{"version = 1\n": ErrPort, "version = 1\n[[ingress.allow]]\ncidrs = [\"192.0.2.0/24\"]\n": nil} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		st, err := loadStored(h, "web")
		must(t, err)
		st.Floor = floor
		must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
		if _, err := h.Ports().Add(t.Context(), "web", Port{Guest: 80}); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), "floor") {
			t.Errorf("under %q: %v, want %v", floor, err, want)
		}
		if got, err := h.Ports().List("web"); err != nil || (len(got) == 0) != (want != nil) {
			t.Errorf("under %q: %v, %v", floor, got, err)
		}
	}
}

// TestPortsNeedANetwork: nothing would ever answer at one of a sandbox without.
func TestPortsNeedANetwork(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.NoNet = true
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if _, err := h.Ports().Add(t.Context(), "web", Port{Guest: 80}); !errors.Is(err, ErrPort) {
		t.Error(err)
	}
	if got, err := h.Ports().List("web"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}
