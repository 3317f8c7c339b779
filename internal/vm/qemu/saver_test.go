//go:build linux && amd64

package qemu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// saved is a machine that was saved: its Spec, and what Save wrote.
type saved struct {
	spec  vm.Spec
	is    vm.Saved
	state []byte
	boot  string
}

// again is the Spec with a card of its own.
func (s *saved) again(t *testing.T, begin func() error) vm.Spec {
	t.Helper()
	far, near, err := runner.StreamPair("link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	spec := s.spec
	spec.Net = &vm.Net{FD: near, MAC: s.spec.Net.MAC}
	spec.Resume = &vm.Resume{Saved: s.is, State: bytes.NewReader(s.state), Begin: begin}
	return spec
}

// save boots a machine, saves it while it runs, and ends it. While its state is written, its disk has all that the guest
// has written.
func save(t *testing.T, b *Backend, warm bool) *saved {
	t.Helper()
	s := &saved{spec: warmSpec(t, "text")}
	s.spec.Warm, s.spec.Saves = warm, true
	g := vmtest.Boot(t, b, s.spec)
	if g.Restored() != warm {
		t.Errorf("restored: %v, want %v", g.Restored(), warm)
	}
	s.boot = g.Ask(t, "read /proc/sys/kernel/random/boot_id")
	m, ok := g.Machine.(vm.Saver)
	if !ok {
		t.Fatalf("%T can't be saved", g.Machine)
	}
	s.is = m.Saved()
	// A writer that takes no more, and a time that is over: the guest goes on.
	if err := m.Save(t.Context(), &fullWriter{left: 1 << 20}, nil); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk: %v", err)
	}
	g.Ask(t, "echo on")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	err := m.Save(ctx, io.Discard, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	cancel()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over its time: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	if err := m.Save(ctx, slowWriter{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow disk: %v", err)
	}
	cancel()
	if got := g.Ask(t, "writedev /dev/vdb %s", "saved"); got != "written" {
		t.Fatal(got)
	}
	var state bytes.Buffer
	began := time.Now()
	err = m.Save(t.Context(), &state, func(context.Context) error {
		written := time.Since(began)
		before, err := os.ReadFile(s.spec.Disks[1].Path)
		if err != nil || !strings.HasPrefix(string(before), "saved") {
			t.Errorf("the disk begins with %.8q, %v", before, err)
		}
		if err := g.Agent().SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			return err
		}
		_, _ = io.WriteString(g.Agent(), "writedev /dev/vdb later\n") // it has this in its port when it goes on
		if n, err := g.Agent().Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it stands still, and says %d bytes (%v)", n, err)
		}
		if after, err := os.ReadFile(s.spec.Disks[1].Path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("its disk changes (%v)", err)
		}
		t.Logf("%d MiB in %s", state.Len()>>20, written)
		return g.Agent().SetDeadline(time.Time{})
	})
	if err != nil {
		t.Fatal(err)
	}
	s.state = state.Bytes()
	if got, err := g.Read(); err != nil || got != "written" {
		t.Errorf("it goes on, and says %q, %v", got, err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.spec.Disks[1].Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("saved") // as the disk was
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

type fullWriter struct{ left int }

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

type slowWriter struct{}

func (slowWriter) Write(b []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return len(b), nil
}

// TestSavedMachinesGoOn saves a machine that was booted, and a copy of a saved one. What was saved goes on, as often as it
// is loaded, and can be saved again.
func TestSavedMachinesGoOn(t *testing.T) {
	t.Parallel()
	b, _ := warm(t)
	for _, copied := range []bool{false, true} {
		s := save(t, b, copied)
		begun := 0
		g := vmtest.GoOn(t, b, s.again(t, func() error { begun++; return nil }))
		if got := g.Ask(t, "read /proc/sys/kernel/random/boot_id"); got != s.boot || begun != 1 || g.Restored() {
			t.Errorf("it is boot %q, want %q; begun %d times", got, s.boot, begun)
		}
		if got := g.Ask(t, "readdev /dev/vdb"); got != "saved" {
			t.Errorf("its disk begins with %q", got)
		}
		var state bytes.Buffer
		m, ok := g.Machine.(vm.Saver)
		if !ok {
			t.Fatalf("%T", g.Machine)
		}
		if err := m.Save(t.Context(), &state, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		g.Ask(t, "echo on")
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		s.is, s.state = m.Saved(), state.Bytes()
		g = vmtest.GoOn(t, b, s.again(t, func() error { return nil }))
		if got := g.Ask(t, "read /proc/sys/kernel/random/boot_id"); got != s.boot {
			t.Errorf("saved twice, it is boot %q, want %q", got, s.boot)
		}
	}
}

// TestDamagedStatesNeverRun: a state whose last bytes don't come, another file, and a beginning that is refused.
func TestDamagedStatesNeverRun(t *testing.T) {
	t.Parallel()
	b, _ := warm(t)
	s := save(t, b, false)
	wrong := errors.New("it is damaged")
	refused := errors.New("not now")
	never := func() error { t.Error("it begins"); return nil }
	for what, c := range map[string]struct {
		state io.Reader
		begin func() error
		want  error
	}{
		"damaged":   {io.MultiReader(bytes.NewReader(s.state[:len(s.state)-1]), failingReader{wrong}), never, wrong},
		"early":     {io.MultiReader(bytes.NewReader(s.state[:1<<20]), failingReader{wrong}), never, wrong},
		"cut":       {bytes.NewReader(s.state[:len(s.state)/2]), never, vm.ErrNotResumed},
		"no state":  {strings.NewReader("this is no state"), never, vm.ErrNotResumed},
		"not begun": {bytes.NewReader(s.state), func() error { return refused }, refused},
	} {
		spec := s.again(t, c.begin)
		spec.Resume.State = c.state
		if m, err := b.Start(t.Context(), spec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
			if err == nil {
				_ = m.Kill()
			}
		}
	}
	// Other machines, by what differs first.
	for what, change := range map[string]func(*vm.Spec){
		"the memory":               func(s *vm.Spec) { s.MemoryMiB *= 2 },
		"the number of processors": func(s *vm.Spec) { s.CPUs++ },
		"the number of disks":      func(s *vm.Spec) { s.Disks = append(s.Disks, vm.Disk{Path: s.Disks[0].Path, ID: "third"}) },
		"the disk second":          func(s *vm.Spec) { s.Disks[1].ReadOnly = true },
		"it was saved by another":  func(s *vm.Spec) { s.Resume.Saved.Backend = "another" },
		"QEMU was QEMU 5.0": func(s *vm.Spec) {
			s.Resume.Saved.Needs = append([]vm.Need{{What: "QEMU", Is: "QEMU 5.0"}}, s.Resume.Saved.Needs[1:]...)
		},
		"the clock of its processor": func(s *vm.Spec) { s.Resume.Saved.ClockKHz *= 2 },
	} {
		spec := s.again(t, never)
		spec.Disks = append([]vm.Disk(nil), spec.Disks...)
		change(&spec)
		if m, err := b.Start(t.Context(), spec); !errors.Is(err, vm.ErrNotResumed) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				_ = m.Kill()
			}
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
