//go:build linux && amd64

package qemu

import (
	"flag"
	"runtime"
	"testing"

	"github.com/msb-project/msb/internal/vm/vmtest"
)

var (
	clockBoots = flag.Int("clock-boots", 3, "guests that TestClockKeepsTime boots, one by one")
	clockLoad  = flag.Bool("clock-load", false, "keep every CPU busy twice over while TestClockKeepsTime runs")
)

// TestClockKeepsTime boots guests and looks at their clocks. Without the
// frequency on the kernel's command line a third to a half of boots fail it.
func TestClockKeepsTime(t *testing.T) {
	if *clockLoad {
		stop := make(chan struct{})
		defer close(stop)
		for range 2 * runtime.NumCPU() {
			go spin(stop)
		}
	}
	s := &vmtest.Suite{Backend: backend(t), Root: vmtest.Root(t, scratch), Serials: true}
	bad := 0
	for range *clockBoots {
		if !t.Run("boot", s.ClockKeepsTime) {
			bad++
		}
	}
	t.Logf("%d of %d guests had a clock that can't be used", bad, *clockBoots)
}

func spin(stop <-chan struct{}) {
	for n := 0; ; n++ {
		if n%1_000_000 == 0 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}
