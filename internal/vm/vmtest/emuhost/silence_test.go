//go:build linux

package emuhost

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestABusyMachineFreezesNoHost: with a clock alone, a host that got a tenth of a processor was taken for a frozen one. The
// twin gets a whole one.
func TestABusyMachineFreezesNoHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		share  float64 // of a processor
		talks  bool
		frozen bool
	}{
		{"silent on an idle machine", 1, false, true},
		{"silent on a busy machine", 0.1, false, false},
		{"talks on an idle machine", 1, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				used := func() time.Duration { return time.Duration(tc.share * float64(time.Since(start))) }
				var frozen atomic.Bool
				w := watchSilence(used, silence, func() { frozen.Store(true) })
				defer w.stop()
				for range 30 {
					time.Sleep(5 * time.Second)
					if tc.talks {
						w.heard()
					}
				}
				if frozen.Load() != tc.frozen {
					t.Errorf("frozen: %v after %v of a processor's time", frozen.Load(), used())
				}
			})
		})
	}
}

func TestProcessorTimeGrows(t *testing.T) {
	t.Parallel()
	before := processorTime(os.Getpid())
	for deadline := time.Now().Add(20 * time.Second); processorTime(os.Getpid()) == before; {
		if time.Now().After(deadline) {
			t.Fatalf("no processor time in 20 s, beside %v", before)
		}
	}
	if got := processorTime(1 << 30); got != 0 {
		t.Errorf("no process: %v", got)
	}
}
