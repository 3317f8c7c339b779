package jobs

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestI11_DeafGuestsHoldUpNoKill. The twin is the first signal, which the queue takes.
func TestI11_DeafGuestsHoldUpNoKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Nobody reads the signals.
		k := &Keeper{Dir: "/home/sandboxes/web/jobs", live: map[string]liveJob{"server": {signals: make(chan agentclient.Signal, 1), halt: func() {}}}}
		if err := k.SignalJob(t.Context(), agentclient.JobID{Name: "server"}, agentclient.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := k.SignalJob(t.Context(), agentclient.JobID{Name: "server"}, agentclient.SIGKILL); !errors.Is(err, agentclient.ErrBusy) || !strings.Contains(err.Error(), "msb stop web") {
			t.Errorf("%v, want ErrBusy and the remedy", err)
		}
	})
}
