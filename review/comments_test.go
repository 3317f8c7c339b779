package review

import (
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack/frameguard"
)

// TestCommentsTellAGatewaysCapture: the guard is asked for captures of others only, for the gateway said what it
// threw away.
func TestCommentsTellAGatewaysCapture(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]bool{
		"":                              false,
		"a remark of whoever made it":   false,
		capture.LostVerdicts(3):         true,
		dropPrefix + "bad_checksum":     true,
		capture.LostVerdicts(3) + " is": false,
	} {
		g := frameGuard{offline: frameguard.NewOffline()}
		reason, dropped := g.readComments([]string{comment})
		if g.annotated != want || dropped != (reason != "") {
			t.Errorf("%q: a gateway's capture %v, want %v; dropped %v for %q", comment, g.annotated, want, dropped, reason)
		}
	}
}
