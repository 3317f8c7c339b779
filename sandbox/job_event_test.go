package sandbox

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
)

// TestJobEventsTellEveryRun in their order, with exit codes and the number of each restart.
func TestJobEventsTellEveryRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy string
		codes  []int
		want   []string
	}{
		{"no", []int{0}, []string{"create", "start", "die 0"}},
		{"on-failure:2", []int{4, 5, 6}, []string{"create", "start", "die 4", "restart 1", "start", "die 5", "restart 2", "start", "die 6"}},
	} {
		k := newKeeper(t)
		clock := newPauses()
		var mu sync.Mutex
		var told []string
		k.Event = func(e jobkeeper.Event) {
			mu.Lock()
			defer mu.Unlock()
			line := [...]string{agentclient.ExecCreated: "create", agentclient.ExecStarted: "start", agentclient.ExecDied: "die"}[e.Stage]
			switch {
			case e.Job != MainJob || e.Program != "program":
				t.Errorf("%+v", e)
			case e.Restarts > 0:
				line = fmt.Sprint("restart ", e.Restarts)
			case e.Code != nil:
				line = fmt.Sprint("die ", *e.Code)
			}
			told = append(told, line)
		}
		var err error
		k.Restart, err = ParseRestart(c.policy)
		must(t, err)
		k.Clock, k.Agent = clock, exits(c.codes...)
		j := k.run(t, MainJob, "program", "private")
		for range c.codes[1:] {
			<-clock.asked
			clock.over <- time.Time{}
		}
		_, err = j.Wait(t.Context())
		must(t, err)
		mu.Lock()
		if !slices.Equal(told, c.want) {
			t.Errorf("%s: %q, want %q", c.policy, told, c.want)
		}
		mu.Unlock()
	}
}

// TestLostJobsDieWithoutACode, as nobody knows one.
func TestLostJobsDieWithoutACode(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	died := make(chan *int, 1)
	k.Event = func(e jobkeeper.Event) {
		if e.Stage == agentclient.ExecDied {
			died <- e.Code
		}
	}
	k.run(t, MainJob, "wait")
	k.stop()
	if code := <-died; code != nil {
		t.Errorf("exit code %d", *code)
	}
}
