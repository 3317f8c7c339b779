package netstack

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"
)

// silent is a gVisor log target that keeps nothing: the stack logs what a guest
// sends (a line a second for martian packets), and a guest must not be able to
// write to the host's disk or terminal. What counts is in Stats.
type silent struct{}

var _ log.Emitter = silent{}

// Emit implements log.Emitter.
func (silent) Emit(int, log.Level, time.Time, string, ...any) {}

// silenceOnce keeps gVisor's process-wide logger from being set while another
// stack logs.
var silenceOnce sync.Once

func silence() { silenceOnce.Do(func() { log.SetTarget(silent{}) }) }
