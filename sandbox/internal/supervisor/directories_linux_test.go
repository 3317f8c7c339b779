package supervisor

import (
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestSharedDirectoriesAreServedToTheLast container that sees them, once for all: a container that goes takes none away from another.
// The twin is what was let go by all, which is served again, as another.
func TestSharedDirectoriesAreServedToTheLast(t *testing.T) {
	t.Parallel()
	s, info := superviseFake(t, &guestVM{}, newPlan(t, t.TempDir(), ""))
	if info == nil {
		t.Fatal(<-s.ended)
	}
	d := agentclient.HostDirectory{Path: t.TempDir(), ReadOnly: true}
	offer := func() (uint32, func()) {
		t.Helper()
		number, done, err := offerDirectory(s.supervisor, d)
		if err != nil {
			t.Fatal(err)
		}
		return number, done
	}
	first, firstDone := offer()
	second, secondDone := offer()
	firstDone()
	third, thirdDone := offer()
	if second != first || third != first {
		t.Errorf("the directory is served as %d, %d and, when one had gone, %d; want one", first, second, third)
	}
	secondDone()
	thirdDone()
	last, done := offer()
	done()
	if last == first {
		t.Error("nobody saw it any more, and it was still served")
	}
}
