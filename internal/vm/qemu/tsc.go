package qemu

import (
	"fmt"
	"sync"
	"time"
)

// A guest under emulation finds its TSC's frequency by comparing it to the
// emulated PIT, which fails in a third to a half of boots because QEMU serves
// the PIT late. The kernel then keeps time by counting ticks, loses a fifth of
// it, and its clock has a resolution of milliseconds. tsc_early_khz skips the
// comparison, so the frequency has to be known here: the emulated TSC is the
// host's own (cpu_get_host_ticks in QEMU).

const (
	// tscSpan is the least time over which the frequency is measured: both ends
	// are exact to about 100 ns, which makes 10 parts in a million.
	tscSpan = 20 * time.Millisecond
	// tscGlance is enough to recognize a clock: 50 parts in a million.
	tscGlance = 4 * time.Millisecond
	// maxTSCOff is how far off the clock of a saved machine may be, in parts
	// per million. Two measurements usually differ by twice their accuracy.
	maxTSCOff = 200
	// tscStale bounds the span: over a suspend of the host TSC and clock differ.
	tscStale = 10 * time.Second
	// A frequency outside of these is a broken measurement, and the kernel
	// would believe it.
	minTSCKHz, maxTSCKHz = 100_000, 20_000_000
)

// tscMeter measures the frequency of the host's TSC between its making and its
// first use, and waits only for what is missing of tscSpan.
type tscMeter struct {
	tsc   func() uint64
	now   func() time.Time
	sleep func(time.Duration)

	mu    sync.Mutex
	begin tscSample
	khz   uint64
}

// tscSample is the TSC's value at a moment.
type tscSample struct {
	tsc uint64
	at  time.Time
}

func newTSCMeter() *tscMeter {
	m := &tscMeter{tsc: readTSC, now: time.Now, sleep: func(d time.Duration) { <-time.After(d) }}
	m.begin = m.sample()
	return m
}

// sample reads both clocks a few times and keeps the reading that took the
// least: the process may be descheduled in between.
func (m *tscMeter) sample() tscSample {
	var best tscSample
	least := time.Duration(1<<63 - 1)
	for range 8 {
		before := m.now()
		tsc := m.tsc()
		if took := m.now().Sub(before); took < least {
			least, best = took, tscSample{tsc, before.Add(took / 2)}
		}
	}
	return best
}

// frequency returns the TSC's frequency in kHz, 0 where it can't be measured.
func (m *tscMeter) frequency() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.khz == 0 && hasTSC {
		m.khz = m.measure(tscSpan)
	}
	return m.khz
}

// is tells whether the TSC has this frequency. Only where a glance says no it waits for all of tscSpan.
func (m *tscMeter) is(khz uint64) bool {
	m.mu.Lock()
	glance := m.khz
	if glance == 0 && hasTSC {
		glance = m.measure(tscGlance)
	}
	m.mu.Unlock()
	return near(glance, khz) || near(m.frequency(), khz)
}

// near tells whether two frequencies are the same clock's.
func near(a, b uint64) bool { return within(a, b, maxTSCOff) }

// within tells whether two frequencies differ by that many parts per million at most.
func within(a, b, ppm uint64) bool { return max(a, b)-min(a, b) <= max(a, b)*ppm/1_000_000 }

// measure returns the frequency over a span since begin, 0 for a broken measurement.
func (m *tscMeter) measure(least time.Duration) uint64 {
	end := m.sample()
	if end.at.Sub(m.begin.at) > tscStale {
		m.begin = end
	}
	if missing := least - end.at.Sub(m.begin.at); missing > 0 {
		m.sleep(missing)
		end = m.sample()
	}
	span := end.at.Sub(m.begin.at)
	ticks := end.tsc - m.begin.tsc
	if span <= 0 || ticks>>40 != 0 { // it went back, or by more than any CPU counts in tscStale
		return 0
	}
	khz := ticks * uint64(time.Millisecond) / uint64(span)
	if khz < minTSCKHz || khz > maxTSCKHz {
		return 0
	}
	return khz
}

// clockArgument returns the kernel argument that tells a guest its TSC's
// frequency, "" where the guest finds it out by itself: on KVM from kvm-clock,
// and with counted instructions, where PIT and TSC are one virtual clock that
// waits for nobody.
func (b *Backend) clockArgument(a accel) string {
	if a != emulated {
		return ""
	}
	khz := b.tsc.frequency()
	if khz == 0 {
		return ""
	}
	return fmt.Sprintf(" tsc_early_khz=%d", khz)
}
