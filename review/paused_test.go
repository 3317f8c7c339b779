package review_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	flow "github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/internal/pcapgen"
)

// TestI16_PausesDecideAsInTheGateway: it waits for so long, then judges what there is. The twin pauses for a little less.
func TestI16_PausesDecideAsInTheGateway(t *testing.T) {
	t.Parallel()
	for port, want := range map[int][2][]string{
		443: {{"allow rule", "allow rule"}, {"deny unreadable", "deny protocol_mismatch"}},
		80:  {{"inspect needs_request", "inspect needs_request"}, {"deny unreadable", "deny protocol_mismatch"}},
	} {
		for long, pause := range []time.Duration{flow.PeekTimeout - time.Second, flow.PeekTimeout + time.Second} {
			c := pcapgen.Paused(port, pause)
			file, _ := c.Capture()
			var got []string
			for f := range reviewed(t, &c, file).Flows() {
				if f.Proto == "tcp" {
					got = append(got, fmt.Sprint(f.Verdict.Action, " ", f.Verdict.Reason))
				}
			}
			if !slices.Equal(got, want[long]) {
				t.Errorf("port %d, a pause of %s: %q, want %q", port, pause, got, want[long])
			}
		}
	}
}

// TestDatagramsAfterPausesBeginFlows, as in the gateway, which forgets them after two minutes.
func TestDatagramsAfterPausesBeginFlows(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]int{119 * time.Second: 1, 121 * time.Second: 2} {
		c := pcapgen.Datagrams(pause)
		file, _ := c.Capture()
		if got := reviewed(t, &c, file).Len(); got != want {
			t.Errorf("after %s: %d flows, want %d", pause, got, want)
		}
	}
}
