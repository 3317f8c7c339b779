package sandbox

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI11_GuestErrorsFitJobFiles: whatever its agent says at the end, and however long the command is, the end
// fits into the job's file. The twin is a short sentence.
func TestI11_GuestErrorsFitJobFiles(t *testing.T) {
	t.Parallel()
	for i, words := range []string{"no", strings.Repeat("<", 512), strings.Repeat("\x01", 512), strings.Repeat("\u2028", 300), strings.Repeat("é\xff\"", 200)} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t)
			k.Agent = execFunc(func(_ context.Context, o ExecOptions) (ExitStatus, error) {
				o.OnStart()
				return ExitStatus{}, fmt.Errorf("%w: %s", agentclient.ErrRefused, words)
			})
			j := k.run(t, strings.Repeat("n", state.MaxNameLen), "sh", strings.Repeat("x", state.MaxShownCommand-20))
			k.work.Wait()
			st, err := j.Status()
			if err != nil || st.State != JobLost || !strings.HasPrefix(st.Reason, agentclient.ErrRefused.Error()) {
				t.Errorf("%+v, %v", st, err)
			}
			must(t, k.RemoveJob(t.Context(), agentclient.JobID{Name: j.Name()}))
		})
	}
}
