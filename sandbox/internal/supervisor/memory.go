package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// memory is what a sandbox goes on from, and what it can be saved with.
type memory struct {
	s *supervisor
	// from is what a snapshot's restore left beside the disk; nil for a guest that boots.
	from *state.SavedMemory
	// key is the one of the agent's session; nil if the machine can't be saved.
	key []byte
	// held tells that the guest stands still while it is saved.
	held atomic.Bool
}

// stateRoom is how much more than the guest's memory a machine's state may be: a mark for each page, and the devices.
func stateRoom(memory int64) int64 {
	const page, mark, devices = 4 << 10, 16, 64 << 20 // the video and firmware that QEMU has beside are a part of that
	return memory + memory/page*mark + devices
}

// unsaved is why a machine of the plan can't be saved; "" if it can.
func unsaved(p *state.Plan) string {
	for _, c := range []struct {
		is  bool
		why string
	}{
		{p.Name == "", "only a sandbox with a name has snapshots"},
		{p.UpperDisk == "", "it has no disk"},
		{len(p.Directories) > 0, "it has directories of this machine (-v), which change beside it"},
		{len(p.Volumes) > 0, "it has volumes, of which its disk's snapshot is none"},
		{len(p.Caches) > 0 || p.CacheWork != "", "it has caches that other sandboxes share (--cache)"},
		{p.Children, "it may have children, whose calls would go on in the middle"},
		{p.Containers || p.Pod != nil, "it is a pod"},
		{p.Review, "its disk is looked at"},
	} {
		if c.is {
			return c.why
		}
	}
	return ""
}

// open looks for a memory that goes with the disk. A run that only looks at the disk would make it useless.
func (m *memory) open() error {
	if m.s.plan.Name == "" || m.s.plan.UpperDisk == "" {
		return nil
	}
	path, err := state.FindMemory(m.s.plan.Dir)
	if err != nil || path == "" {
		return err
	}
	if m.s.plan.Review {
		return m.remedy(fmt.Errorf("%w: its disk has a memory beside it; start it first", vm.ErrNotResumed))
	}
	if m.from, err = state.OpenMemory(path); err != nil {
		return m.remedy(err)
	}
	st, err := state.ReadStored(m.s.plan.Dir, m.s.plan.Name)
	switch {
	case err != nil:
		return err
	case !st.Created.Equal(m.from.Created):
		return m.remedy(fmt.Errorf("%w: the memory is another sandbox's", vm.ErrNotResumed))
	case m.s.plan.Backend != vm.Auto && m.s.plan.Backend != "" && m.s.plan.Backend != m.from.Saved.Backend:
		return m.remedy(fmt.Errorf("%w: it was saved by %s, and the sandbox is one of %s", vm.ErrNotResumed, m.from.Saved.Backend, m.s.plan.Backend))
	}
	if why := unsaved(m.s.plan); why != "" {
		return m.remedy(fmt.Errorf("%w: %s", vm.ErrNotResumed, why))
	}
	needs, err := m.needs()
	if err == nil {
		err = vm.CheckNeeds(m.from.Needs, needs)
	}
	return m.remedy(err)
}

// remedy says what to do about a memory that can't be used.
func (m *memory) remedy(err error) error {
	if err == nil {
		return nil
	}
	origin := diskstore.Origin{Name: "SNAPSHOT"}
	_ = state.ReadJSON(m.s.plan.Dir, state.OriginFile, &origin) // without it the command has no name
	return fmt.Errorf("%w; `msb snapshot restore --no-memory %s %s` puts the disk back without its memory", err, origin.Name, m.s.plan.Name)
}

// needs is what the guest was set up with at its boot.
func (m *memory) needs() ([]vm.Need, error) {
	p := m.s.plan
	tmpfs, err := json.Marshal(p.Tmpfs)
	if err != nil {
		return nil, err
	}
	const most = 5
	needs := append(make([]vm.Need, 0, most),
		vm.Need{What: "the host name", Is: p.Hostname},
		vm.Need{What: "the root", Is: map[bool]string{true: "read-only", false: "writable"}[p.ReadOnly]},
		vm.Need{What: "the list of tmpfs", Is: string(tmpfs)},
	)
	if p.NoNet {
		return needs, nil
	}
	authority, err := ca.Load(filepath.Join(p.Dir, state.CaFile))
	is := "there is none"
	switch {
	case err == nil:
		is = fmt.Sprintf("%x", sha256.Sum256(authority.CertPEM()))[:16]
	case errors.Is(err, ca.ErrExpired):
		is = "expired"
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d := frameguard.Default()
	return append(needs,
		vm.Need{What: "the certificate authority", Is: is},
		vm.Need{What: "the network", Is: fmt.Sprintf("%s %s %s %s %s %d", d.Guest4, d.Gateway4, d.Guest6, d.Gateway6, d.GatewayMAC, netstack.LargeMTU)},
	), nil
}

// prepare makes the Spec one of a machine that goes on, or that can be saved.
func (m *memory) prepare(spec *vm.Spec) {
	spec.Saves = unsaved(m.s.plan) == ""
	if m.from == nil {
		return
	}
	spec.Warm, spec.Resume = false, &vm.Resume{Saved: m.from.Saved, State: m.from, Begin: m.from.Take}
	if spec.Net != nil {
		spec.Net.MAC = m.from.MAC
	}
}

// begun is told that the machine was started, or why not.
func (m *memory) begun(err error) error {
	if m.from == nil {
		return err
	}
	if errors.Is(err, vm.ErrNotResumed) || errors.Is(err, state.ErrMemoryDamaged) {
		err = m.remedy(err)
	}
	return errors.Join(err, m.from.Close())
}

// join begins the session with the agent of a machine that goes on, and makes the key of a later one.
func (m *memory) join(ctx context.Context, opts *agentclient.Options) (conn agentclient.RejoinConn, err error) {
	conn = m.s.machine.Agent()
	if m.from != nil {
		opts.Resumed = true
		if conn, err = agentclient.Rejoin(ctx, conn, m.from.Key); err != nil {
			return nil, err
		}
	}
	if _, ok := m.s.machine.(vm.Saver); ok {
		m.key = make([]byte, agentpb.ResumeKeyBytes)
		_, _ = rand.Read(m.key) // crypto/rand never fails
		opts.ResumeKey = m.key
	}
	return conn, nil
}

// save is agentclient.SaveMemory. Nothing pauses the guest meanwhile.
func (m *memory) save(ctx context.Context, work string, limit time.Duration, still func(context.Context) error) error {
	s := m.s
	if why := unsaved(s.plan); why != "" {
		return fmt.Errorf("%w: %s", agentclient.ErrNotSaved, why)
	}
	saver, ok := s.machine.(vm.Saver)
	if !ok {
		return fmt.Errorf("%w: its machine runs on %s, which has no saved state; a sandbox that is made with --vm qemu has", agentclient.ErrNotSaved, s.backend.Name())
	}
	s.pause.mu.Lock()
	defer s.pause.mu.Unlock()
	if err := s.pause.refuse(); err != nil {
		return err
	}
	path, err := diskstore.MemoryOfWork(filepath.Join(s.plan.Home, state.SnapshotsDir), work)
	if err != nil {
		return err
	}
	head, err := m.head(saver)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(limit, state.MaxHold))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the sandbox's end ends it too
	err = m.hold(ctx, func() error {
		w, err := state.NewMemoryWriter(f, head, stateRoom(s.plan.Memory))
		if err != nil {
			return err
		}
		return saver.Save(ctx, w, func(ctx context.Context) error {
			if err := errors.Join(w.Finish(), f.Close()); err != nil {
				return err
			}
			return still(ctx)
		})
	})
	if err != nil {
		_ = f.Close() // it may be closed already
		err = errors.Join(err, state.UnlessGone(os.Remove(path)))
	}
	return err
}

// hold calls do, which lets the guest stand still and go on. Its clock is set before anybody else hears of it.
func (m *memory) hold(ctx context.Context, do func() error) error {
	s := m.s
	m.held.Store(true)
	s.event(audit.SandboxPause, "for a snapshot of its memory")
	began := time.Now()
	err := do()
	s.event(audit.SandboxResume, fmt.Sprintf("after %s", time.Since(began).Round(time.Millisecond)))
	s.pause.resumed.Store(true) // its clock is looked at once more, whatever comes now
	m.held.Store(false)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, livenessWait)
		defer cancel()
		newGuestClock(s.agent).look(ctx)
	}
	return err
}

func (m *memory) head(saver vm.Saver) (*state.MemoryHead, error) {
	st, err := state.ReadStored(m.s.plan.Dir, m.s.plan.Name)
	if err != nil {
		return nil, err
	}
	needs, err := m.needs()
	if err != nil {
		return nil, err
	}
	return &state.MemoryHead{Created: st.Created, Saved: saver.Saved(), Needs: needs, MAC: m.s.mac, Key: m.key}, nil
}
