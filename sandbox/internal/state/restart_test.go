package state

import (
	"errors"
	"testing"
	"time"
)

// TestRestartPoliciesParseAsInDocker reads what docker reads, and says of the rest what to write.
func TestRestartPoliciesParseAsInDocker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Restart{
		"no": {When: RestartNo}, "always": {When: RestartAlways}, "on-failure": {When: RestartOnFailure}, "on-failure:3": {When: RestartOnFailure, Most: 3},
	} {
		if got, err := ParseRestart(text); err != nil || got != want || got.String() != text || got.None() != (text == "no") {
			t.Errorf("%q: %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "yes", "Always", "unless-stopped", "always:3", "no:1", "on-failure:", "on-failure:0", "on-failure:-1", "on-failure:x", "on-failure:1:2", "on-failure:9999999", "on-failure:99999999999999999999"} {
		if got, err := ParseRestart(text); !errors.Is(err, ErrRestart) && text != "" {
			t.Errorf("%q was read as %+v, %v", text, got, err)
		}
	}
	if none := (Restart{}); !none.None() || none.String() != "no" || none.Check() != nil {
		t.Errorf("the zero value is %s", none)
	}
}

// TestRestartPausesDouble to a bound, and begin again after a run that was long enough.
func TestRestartPausesDouble(t *testing.T) {
	t.Parallel()
	r := Restarts{Policy: Restart{When: RestartAlways}}
	for i, c := range []struct{ ran, want time.Duration }{
		{0, 100 * time.Millisecond}, {0, 200 * time.Millisecond}, {calmRun - 1, 400 * time.Millisecond}, {calmRun, 100 * time.Millisecond}, {0, 200 * time.Millisecond},
	} {
		if got, again := r.Next(c.ran, 0); got != c.want || !again || r.Count != i+1 {
			t.Errorf("%d: %s, %v, count %d; want %s", i, got, again, r.Count, c.want)
		}
	}
	for range 100 {
		if got, _ := r.Next(0, 0); got > time.Minute {
			t.Fatalf("a pause of %s", got)
		}
	}
	if got, _ := r.Next(0, 0); got != time.Minute {
		t.Errorf("the longest pause is %s", got)
	}
}

func TestOnFailureRestartsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy Restart
		code   int
		want   int // of 5 ends
	}{
		{Restart{}, 1, 0},
		{Restart{When: RestartNo}, 1, 0},
		{Restart{When: RestartOnFailure}, 0, 0},
		{Restart{When: RestartOnFailure}, 137, 5},
		{Restart{When: RestartOnFailure, Most: 2}, 1, 2},
		{Restart{When: RestartAlways}, 0, 5},
	} {
		r := Restarts{Policy: c.policy}
		for range 5 {
			r.Next(0, c.code)
		}
		if r.Count != c.want {
			t.Errorf("%s after code %d: %d restarts, want %d", c.policy, c.code, r.Count, c.want)
		}
	}
}
