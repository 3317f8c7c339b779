package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// blankMAC is the address of a saved machine's network device.
var blankMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// startWarm starts a copy of the saved machine of the Spec's kind, which is
// made first where there is none. It returns nil where that is not possible,
// and has left the Spec's descriptor open then.
func (b *Backend) startWarm(ctx context.Context, spec *vm.Spec) vm.Machine {
	path, err := b.templatePath(spec)
	if err != nil {
		return nil // the ordinary start reports the error
	}
	if info, err := os.Stat(path + failedSuffix); err == nil && time.Since(info.ModTime()) < giveUp {
		return nil
	}
	m, err := b.restore(ctx, path, spec)
	if err == nil {
		_ = closeNet(spec) // QEMU has its own copy
		_ = os.Remove(path + failedSuffix)
		return m
	}
	if ctx.Err() == nil && !errors.Is(err, errBusy) {
		_ = os.Remove(path) // made again when it is tried again
		_ = cachefile.Write(path+failedSuffix, 0o600, []byte(err.Error()+"\n"))
	}
	return nil
}

// blank is the Spec of the machine to be saved: it has the sandbox's first
// disk, and the empty disks at paths in place of the others.
func blank(spec *vm.Spec, paths []string) vm.Spec {
	kind := vm.Spec{
		CPUs: spec.CPUs, MemoryMiB: spec.MemoryMiB, Cmdline: spec.Cmdline, Net: spec.Net,
		Disks: slices.Clone(spec.Disks),
	}
	for i, path := range paths {
		kind.Disks[1+i].Path, kind.Disks[1+i].ID = path, fmt.Sprintf("blank%d", 1+i)
	}
	return kind
}

// blankDisks makes empty disks, each as large as that of the Spec that it stands for.
func (b *Backend) blankDisks(spec *vm.Spec) (paths []string, err error) {
	for _, d := range spec.Disks[1:] {
		info, err := os.Stat(d.Path)
		if err != nil {
			return paths, err
		}
		f, err := os.CreateTemp(b.config.CacheDir, ".new-*")
		if err != nil {
			return paths, err
		}
		paths = append(paths, f.Name())
		if err := errors.Join(f.Truncate(info.Size()), f.Close()); err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// errBusy means that another process saves a machine: nobody waits for it.
var errBusy = errors.New("another process saves a machine")

// errNoFrequency means that nothing could tell whether the clock of a saved machine is this host's: its kernel measures
// time by the frequency that KVM told it.
var errNoFrequency = errors.New("the frequency of this host's TSC can't be measured")

// clock returns the frequency of the TSC of a machine that is saved, in kHz; 0 is that of one whose kernel doesn't go by it.
func (b *Backend) clock() (uint64, error) {
	khz := b.tsc.frequency()
	if khz == 0 && b.accel() == onKVM {
		return 0, errNoFrequency
	}
	return khz, nil
}

// save boots a machine until its first process is ready, and writes its template.
func (b *Backend) save(ctx context.Context, spec *vm.Spec, w io.Writer) (err error) {
	khz, err := b.clock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, monitorWait)
	defer cancel()
	lock, err := os.Open(b.config.CacheDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errBusy
	}
	paths, err := b.blankDisks(spec)
	defer func() {
		for _, path := range paths {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err != nil {
		return err
	}
	kind := blank(spec, paths)
	if kind.Net != nil {
		far, near, err := runner.StreamPair("link")
		if err != nil {
			return err
		}
		defer far.Close()
		kind.Net = &vm.Net{FD: near, MAC: blankMAC}
	}
	size := int64(spec.MemoryMiB) << 20
	memory, err := newMemory("memory", size)
	if err != nil {
		return errors.Join(err, closeNet(&kind))
	}
	defer memory.Close()
	state, err := newMemory("state", 0)
	if err != nil {
		return errors.Join(err, closeNet(&kind))
	}
	defer state.Close()
	mon, m, err := b.startMonitored(ctx, &kind, memory, nil)
	if err != nil {
		return err
	}
	defer mon.close()
	defer func() { err = errors.Join(err, m.Kill()) }()
	t := &template{TSC: khz}
	if t.Greeting, err = greeting(ctx, m, func() error { return mon.save(ctx, state) }); err != nil {
		return err
	}
	if err := m.Wait(ctx); err != nil {
		return err
	}
	if t.State, err = io.ReadAll(io.NewSectionReader(state, 0, maxStateBytes)); err != nil {
		return err
	}
	if t.Extents, err = used(memory, size); err != nil {
		return err
	}
	return t.writeTo(w, memory)
}

// greeting reads what the guest writes to its port until it is ready, saves it,
// and reads what it wrote until it was saved.
func greeting(ctx context.Context, m vm.Machine, save func() error) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = m.Agent().SetDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 4<<10)
	n, err := m.Agent().Read(buf)
	if err != nil {
		return nil, fmt.Errorf("the guest that is to be saved: %w", err)
	}
	if err := save(); err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(m.Agent(), int64(len(buf))))
	return append(buf[:n], rest...), err
}

// startMonitored starts a machine that is going to be saved, or, with a state,
// to be restored. Both files may be nil.
func (b *Backend) startMonitored(ctx context.Context, spec *vm.Spec, memory, state *os.File) (*monitor, vm.Machine, error) {
	mon, theirs, err := newMonitor()
	if err != nil {
		return nil, nil, errors.Join(err, closeNet(spec))
	}
	s := saving{monitor: theirs}
	if memory != nil {
		s.memory, err = again(memory)
	}
	if err == nil && state != nil {
		s.state, err = again(state)
	}
	if err != nil {
		if s.memory != nil {
			err = errors.Join(err, s.memory.Close())
		}
		err = errors.Join(err, theirs.Close(), closeNet(spec))
		mon.close()
		return nil, nil, err
	}
	m, err := b.start(ctx, spec, s)
	if err != nil {
		mon.close()
		return nil, nil, err
	}
	return mon, m, nil
}

// restore starts a copy of the saved machine at path.
func (b *Backend) restore(ctx context.Context, path string, spec *vm.Spec) (vm.Machine, error) {
	t, file, err := b.template(ctx, path, spec)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size := int64(spec.MemoryMiB) << 20
	among, err := shareOf(path, file, size)
	if err != nil {
		return nil, err
	}
	memory, err := among.borrow()
	borrowed := err == nil
	if !borrowed {
		if memory, err = newMemory("memory", size); err != nil {
			return nil, err
		}
	}
	defer memory.Close()
	state, err := newMemory("state", 0)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	filled := make(chan error, 1)
	go func() { // while QEMU starts
		_, err := state.WriteAt(t.State, 0)
		if !borrowed {
			err = errors.Join(err, t.readMemory(file, memory, size))
		}
		filled <- err
	}()
	loading, cancel := context.WithTimeout(ctx, monitorWait)
	defer cancel()
	mon, m, err := b.startCopy(ctx, spec, memory, state)
	if err = errors.Join(err, <-filled); err == nil {
		if err = seal(state); !borrowed {
			err = errors.Join(err, seal(memory))
		}
	}
	if err == nil {
		err = mon.load(loading, numbers(spec, saving{memory, memory, state}).state)
	}
	if mon != nil && (err != nil || !spec.Saves) {
		mon.close()
	}
	if err != nil {
		if m != nil {
			err = errors.Join(err, m.Kill())
		}
		return nil, err
	}
	if kept, err := again(memory); err == nil {
		_ = among.lend(kept, m.Done()) // else the next copy reads the disk
	}
	copied := &restored{m, &greeted{Conn: m.Agent(), said: t.Greeting}}
	if spec.Saves {
		return b.saver(ctx, copied, spec, mon, true)
	}
	return copied, nil
}

// startCopy starts QEMU for a copy. The Spec's descriptor stays open, for an
// ordinary start where this fails.
func (b *Backend) startCopy(ctx context.Context, spec *vm.Spec, memory, state *os.File) (*monitor, vm.Machine, error) {
	copied := *spec
	if spec.Net != nil {
		fd, err := again(spec.Net.FD)
		if err != nil {
			return nil, nil, err
		}
		copied.Net = &vm.Net{FD: fd, MAC: spec.Net.MAC}
	}
	return b.startMonitored(ctx, &copied, memory, state)
}

// again returns a descriptor of its own for an open file.
func again(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func closeNet(spec *vm.Spec) error {
	if spec.Net == nil || spec.Net.FD == nil {
		return nil
	}
	return spec.Net.FD.Close()
}

// restored is a copy of a saved machine.
type restored struct {
	vm.Machine
	agent *greeted
}

// Agent implements vm.Machine.
func (r *restored) Agent() vm.Conn { return r.agent }

// Restored implements vm.Machine.
func (r *restored) Restored() bool { return true }

// greeted is the agent's stream of a restored machine, which begins with what the
// guest wrote before it was saved.
type greeted struct {
	vm.Conn
	said []byte
}

// Read implements io.Reader.
func (g *greeted) Read(p []byte) (int, error) {
	if len(g.said) == 0 {
		return g.Conn.Read(p)
	}
	n := copy(p, g.said)
	g.said = g.said[n:]
	return n, nil
}
