package supervisor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestMemoryNeedsAMachineThatCanBeSaved: libkrun's can't.
func TestMemoryNeedsAMachineThatCanBeSaved(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Spec: state.Spec{Name: "web"}, UpperDisk: "disk"}, nil, nil)
	s.machine, s.backend = &guestVM{}, &guestVM{}
	err := s.memory.save(t.Context(), "WORK", time.Minute, func(context.Context) error { t.Error("it stands still"); return nil })
	if !errors.Is(err, agentclient.ErrNotSaved) || !strings.Contains(err.Error(), "fake, which has no saved state") || !strings.Contains(err.Error(), "--vm qemu") {
		t.Errorf("%v", err)
	}
}

// TestMemoryIsOfTheSandboxAlone names what another owner changes beside it.
func TestMemoryIsOfTheSandboxAlone(t *testing.T) {
	t.Parallel()
	whole := state.Plan{UpperDisk: "disk"}
	whole.Name = "web"
	if why := unsaved(&whole); why != "" {
		t.Errorf("%q", why)
	}
	for want, change := range map[string]func(*state.Plan){
		"a name":                      func(p *state.Plan) { p.Name = "" },
		"no disk":                     func(p *state.Plan) { p.UpperDisk = "" },
		"directories of this machine": func(p *state.Plan) { p.Directories = []state.Directory{{Guest: "/d"}} },
		"volumes":                     func(p *state.Plan) { p.Volumes = []state.Volume{{}} },
		"caches":                      func(p *state.Plan) { p.Caches = []string{"pip"} },
		"children":                    func(p *state.Plan) { p.Children = true },
		"a pod":                       func(p *state.Plan) { p.Containers = true },
		"looked at":                   func(p *state.Plan) { p.Review = true },
	} {
		p := whole
		change(&p)
		if why := unsaved(&p); !strings.Contains(why, want) {
			t.Errorf("%q, want %q", why, want)
		}
	}
}

// TestSavedNeedsAreCompared in both directions.
func TestSavedNeedsAreCompared(t *testing.T) {
	t.Parallel()
	saved := []vm.Need{{What: "the memory", Is: "512 MiB"}, {What: "the disk image", Is: "old"}}
	if err := vm.CheckNeeds(saved, []vm.Need{saved[1], saved[0]}); err != nil {
		t.Error(err)
	}
	for want, here := range map[string][]vm.Need{
		"the memory was 512 MiB, and is 1 MiB here":      {{What: "the memory", Is: "1 MiB"}, saved[1]},
		"the disk image was old, and there is none here": saved[:1],
		"the disk upper is new here, and there was none": append(saved[:2:2], vm.Need{What: "the disk upper", Is: "new"}),
		"the memory was 512 MiB, and there is none here": nil,
	} {
		if err := vm.CheckNeeds(saved, here); !errors.Is(err, vm.ErrNotResumed) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
