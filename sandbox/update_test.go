package sandbox

import (
	"errors"
	"testing"
	"time"
)

func TestStoppedSandboxesAreUpdated(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	hour, cpus, memory := time.Hour, 2, int64(1<<30)
	if err := h.Update(t.Context(), "web", Changes{Lifetime: &hour, CPUs: &cpus, Memory: &memory, Restart: &Restart{When: "always"}, Labels: map[string]string{"team": "a"}}); err != nil {
		t.Fatal(err)
	}
	st, err := h.Inspect("web")
	if err != nil || st.Lifetime != hour || st.CPUs != 2 || st.Memory != memory || st.Restart != "always" || st.Labels["team"] != "a" {
		t.Errorf("%v: %+v", err, st)
	}
	if err := h.Keep(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	none, little, negative := 0, int64(1), -time.Hour
	for name, c := range map[string]Changes{
		"no processor": {CPUs: &none}, "little memory": {Memory: &little}, "a negative time": {IdleStop: &negative},
		"no policy": {Restart: &Restart{When: "sometimes"}}, "a label without a key": {Labels: map[string]string{"": "x"}},
	} {
		c.Keep = true
		if err := h.Update(t.Context(), "web", c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if again, err := h.Inspect("web"); err != nil || again.CPUs != 2 || again.Memory != memory {
		t.Errorf("what was refused has changed it: %+v, %v", again, err)
	}
	if err := h.Update(t.Context(), "nosuch", Changes{Keep: true}); !errors.Is(err, ErrNoSandbox) {
		t.Error(err)
	}
}
