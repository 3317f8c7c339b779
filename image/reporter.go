package image

import (
	"sync"
	"time"
)

// reportEvery bounds how often bytes are reported; a terminal shows no more.
const reportEvery = 100 * time.Millisecond

// reporter counts and hands events on, one at a time.
type reporter struct {
	mu   sync.Mutex
	to   Progress
	now  func() time.Time
	last time.Time
	ev   Event
}

func newReporter(ref string, to Progress, now func() time.Time) *reporter {
	return &reporter{to: to, now: now, ev: Event{Ref: ref}}
}

// send hands ev on; mu is held. Byte counts are passed on now and then only.
func (r *reporter) send(always bool) {
	if r.to == nil {
		return
	}
	now := r.now()
	if !always && now.Sub(r.last) < reportEvery {
		return
	}
	r.last = now
	r.to.Report(r.ev)
}

func (r *reporter) phase(p Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Phase, r.ev.Layer = p, ""
	r.send(true)
}

func (r *reporter) done(cached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Phase, r.ev.Layer, r.ev.Cached = PhaseDone, "", cached
	r.send(true)
}

func (r *reporter) startFetch(layers []layerSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Phase, r.ev.Layers, r.ev.Done, r.ev.Total = PhaseFetching, len(layers), 0, compressedBytes(layers)
	for _, l := range layers {
		if l.size < 0 {
			r.ev.Total = 0
		}
	}
	r.send(true)
}

func (r *reporter) fetched(layer string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Layer = layer
	r.ev.Done += n
	r.send(false)
}

func (r *reporter) layerDone(layer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Layer = layer
	r.ev.LayersDone++
	r.send(true)
}

func (r *reporter) startWrite(total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Phase, r.ev.Layer, r.ev.Done, r.ev.Total = PhaseWriting, "", 0, total
	r.send(true)
}

func (r *reporter) wrote(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ev.Done += n
	r.send(false)
}
