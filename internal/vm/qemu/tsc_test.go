package qemu

import (
	"testing"
	"time"
)

// fakeHost is a TSC and a clock that advance together, and by more than a
// reading takes when the process is descheduled.
type fakeHost struct {
	khz   uint64
	at    time.Duration
	stall map[int]time.Duration // by number of the reading
	reads int
}

func (h *fakeHost) now() time.Time {
	h.at += 50 * time.Nanosecond
	return time.Unix(1000, 0).Add(h.at)
}

func (h *fakeHost) tsc() uint64 {
	h.at += h.stall[h.reads]
	h.reads++
	return 1<<50 + h.khz*uint64(h.at)/uint64(time.Millisecond)
}

func TestTSCFrequencyIsMeasuredAcrossStalls(t *testing.T) {
	t.Parallel()
	if !hasTSC {
		t.Skip("no TSC on this architecture")
	}
	for name, tt := range map[string]struct {
		khz    uint64
		passed time.Duration // between New and Start
		stall  map[int]time.Duration
		want   uint64
		waits  bool
	}{
		"at once":                  {khz: 2_600_000, want: 2_600_000, waits: true},
		"after QEMU answered":      {khz: 2_100_000, passed: 70 * time.Millisecond, want: 2_100_000},
		"descheduled in a reading": {khz: 3_000_000, passed: 70 * time.Millisecond, stall: map[int]time.Duration{0: time.Second, 3: time.Hour / 1000, 9: time.Second}, want: 3_000_000},
		"an hour later":            {khz: 2_400_000, passed: time.Hour, want: 2_400_000, waits: true},
		"no clock at all":          {khz: 0, want: 0, waits: true},
		"an absurd one":            {khz: 90_000_000, want: 0, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeHost{khz: tt.khz, stall: tt.stall}
			waited := false
			m := &tscMeter{tsc: h.tsc, now: h.now, sleep: func(d time.Duration) { waited = true; h.at += d }}
			m.begin = m.sample()
			h.at += tt.passed
			got := m.frequency()
			if diff := int64(got) - int64(tt.want); diff < -int64(tt.want/50_000) || diff > int64(tt.want/50_000) {
				t.Errorf("%d kHz, want %d within 20 in a million", got, tt.want)
			}
			if waited != tt.waits {
				t.Errorf("waited: %v, want %v", waited, tt.waits)
			}
		})
	}
}

func TestTSCFrequenciesAreRecognizedAtAGlance(t *testing.T) {
	t.Parallel()
	if !hasTSC {
		t.Skip("no TSC on this architecture")
	}
	for name, tt := range map[string]struct {
		saved, khz uint64
		stall      map[int]time.Duration
		want       bool
		waits      time.Duration
	}{
		"the same":                    {saved: 2_600_000, khz: 2_600_000, want: true, waits: tscGlance},
		"as measured elsewhere":       {saved: 2_600_400, khz: 2_600_000, want: true, waits: tscGlance},
		"another":                     {saved: 2_601_000, khz: 2_600_000, waits: tscSpan},
		"another at the first glance": {saved: 2_600_000, khz: 2_600_000, stall: stalls(16, 24, time.Millisecond), want: true, waits: tscSpan},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeHost{khz: tt.khz, stall: tt.stall}
			var waited time.Duration
			m := &tscMeter{tsc: h.tsc, now: h.now, sleep: func(d time.Duration) { waited += d; h.at += d }}
			m.begin = m.sample()
			if got := m.is(tt.saved); got != tt.want {
				t.Errorf("%d kHz on a clock of %d: %v, want %v", tt.saved, tt.khz, got, tt.want)
			}
			if waited > tt.waits {
				t.Errorf("waited for %v, want %v at most", waited, tt.waits)
			}
		})
	}
}

// stalls stops the process for that long in each reading from first to end.
func stalls(first, end int, d time.Duration) map[int]time.Duration {
	all := map[int]time.Duration{}
	for i := first; i < end; i++ {
		all[i] = d
	}
	return all
}

func TestClockArgumentIsForEmulationOnly(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	for _, a := range []accel{onKVM, emulatedInTurn} {
		if got := b.clockArgument(a); got != "" {
			t.Errorf("accel %d: the argument is %q, want none", a, got)
		}
	}
	if got := b.clockArgument(emulated); hasTSC && got == "" {
		t.Error("under emulation the guest is not told its TSC's frequency")
	}
}
