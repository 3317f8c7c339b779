package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestFiguresWaitForNoStart: a sandbox that is starting answers when it is ready, and says so until then. The twins don't
// run. Whoever gives up gets no figures.
func TestFiguresWaitForNoStart(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, name := range []string{"off", "starts"} {
		must(t, aNamed(t, h, name))
	}
	l, err := state.ListenControl(namedPath(h, "starts"))
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, state.WriteJSON(namedPath(h, "starts"), state.InfoFile, state.RunRecord{}))
	all, err := h.Usage(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "starts" || !strings.Contains(all[0].Problem, "starting") {
		t.Errorf("%+v, %v; want that it is starting", all, err)
	}
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := h.Usage(gaveUp, "starts"); !errors.Is(err, context.Canceled) || all != nil {
		t.Errorf("given up: %+v, %v", all, err)
	}
}
