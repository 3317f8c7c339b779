package review_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

// TestI16_RandomSegmentsAreReviewedAlike has a client without a stack send segments that overlap, contradict each other and
// lie. What the gateway's stack makes of them is what the review has to judge. MSB_DIFFERENTIAL says for how long.
func TestI16_RandomSegmentsAreReviewedAlike(t *testing.T) {
	t.Parallel()
	cases, until := 60, time.Time{}
	if text := os.Getenv("MSB_DIFFERENTIAL"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		cases, until = 1<<30, time.Now().Add(d)
	}
	compared := int64(0)
	for range cases {
		if !until.IsZero() && time.Now().After(until) {
			break
		}
		seed := rand.Uint64()
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			c := pcapgen.Mangled(rand.New(rand.NewPCG(seed, 2)))
			file, zone := c.Capture()
			r := reviewed(t, &c, file)
			guest := startGuest(t, &c, file, zone)
			guest.inject(file)
			guest.alive()
			judged(guest.world.Audit, r)
			guest.close()
			compared += compare(t, guest.world.Audit, r.Flows()) + compareRequests(t, guest.world.Audit, r)
		}) {
			break
		}
	}
	if compared < int64(min(cases, 20)) {
		t.Errorf("%d verdicts were compared", compared)
	}
	t.Logf("%d verdicts compared", compared)
}

// judged waits until the gateway has a verdict on the connection, if the review has one.
func judged(log *gatewaytest.Recorder, r *review.Report) {
	for f := range r.Flows() {
		if f.Proto != "tcp" || f.Verdict == nil || f.Verdict.Action == review.Undecided {
			continue
		}
		for end := time.Now().Add(time.Second); len(log.Events(audit.FlowOpen)) == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
}
