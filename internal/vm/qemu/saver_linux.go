package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

const (
	// savedVersion is that of what is saved, and of how its machine is loaded.
	savedVersion = 1
	// goOnWait bounds how long a guest that stands still is kept from going on by a QEMU that doesn't answer.
	goOnWait = 20 * time.Second
	// saveBandwidth is more than any disk takes, in bytes a second: QEMU's default is meant for a network.
	saveBandwidth = 1 << 40
	// copyBytes is how much of a state is passed on at once, and kept in the pipe.
	copyBytes = 1 << 20
)

// saver is a machine whose monitor stays open, so that it can be saved.
type saver struct {
	vm.Machine
	b     *Backend
	needs []vm.Need // as of its start: files may be replaced meanwhile

	mu  sync.Mutex // held while it is saved
	mon *monitor
	// begun tells that the monitor takes commands.
	begun bool
}

var _ vm.Saver = (*saver)(nil)

// saver makes m one. It ends it where that fails.
func (b *Backend) saver(ctx context.Context, m vm.Machine, spec *vm.Spec, mon *monitor, begun bool) (vm.Machine, error) {
	needs, err := b.needs(ctx, spec)
	if err != nil {
		err = errors.Join(err, m.Kill())
		mon.close()
		return nil, err
	}
	s := &saver{Machine: m, b: b, needs: needs, mon: mon, begun: begun}
	go func() {
		<-m.Done()
		mon.close()
	}()
	return s, nil
}

// needs is what a machine of the Spec is, as far as a state of it depends on that.
func (b *Backend) needs(ctx context.Context, spec *vm.Spec) ([]vm.Need, error) {
	binary, err := b.find()
	if err != nil {
		return nil, err
	}
	version, err := b.version(ctx, binary)
	if err != nil {
		return nil, err
	}
	program, err := identity(append(modules(binary), binary)...)
	if err != nil {
		return nil, err
	}
	cpu, err := b.guestProcessor()
	if err != nil {
		return nil, err
	}
	needs := []vm.Need{
		{What: "QEMU", Is: version},
		{What: "QEMU's program", Is: program},
		{What: "the guest's processor", Is: cpu},
		{What: "the number of processors", Is: fmt.Sprint(spec.CPUs)},
		{What: "the memory", Is: fmt.Sprintf("%d MiB", spec.MemoryMiB)},
		{What: "the network card", Is: map[bool]string{true: "there", false: "not there"}[spec.Net != nil]},
		{What: "the number of disks", Is: fmt.Sprint(len(spec.Disks))},
	}
	for _, d := range spec.Disks {
		is, err := diskNeed(&d)
		if err != nil {
			return nil, err
		}
		needs = append(needs, vm.Need{What: "the disk " + d.ID, Is: is})
	}
	kind := blank(spec, make([]string, len(spec.Disks)-1))
	kind.Disks[0].Path = ""
	if kind.Net != nil {
		kind.Net = &vm.Net{MAC: blankMAC}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%q", savedVersion, args("", "", "", &kind, b.accel(), fds{monitor: 1, state: 1})))
	return append(needs, vm.Need{What: "msb's description of the machine", Is: hex.EncodeToString(sum[:6])}), nil
}

// diskNeed is what a guest that goes on takes for granted of a disk: what it has read of one that it can't write to is
// in its memory.
func diskNeed(d *vm.Disk) (string, error) {
	info, err := os.Stat(d.Path)
	if err != nil {
		return "", err
	}
	if !d.ReadOnly {
		return fmt.Sprintf("of %d bytes", info.Size()), nil
	}
	return fmt.Sprintf("of %d bytes from %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)), nil
}

// identity tells files from later versions of them.
func identity(paths ...string) (string, error) {
	parts := make([]string, 0, len(paths))
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%s of %d bytes from %s", path, info.Size(), info.ModTime().UTC().Format(time.RFC3339)))
	}
	return strings.Join(parts, ", "), nil
}

// Saved implements vm.Saver.
func (s *saver) Saved() vm.Saved {
	return vm.Saved{Backend: s.b.Name(), Needs: s.needs, ClockKHz: s.b.tsc.frequency()}
}

// Save implements vm.Saver.
func (s *saver) Save(ctx context.Context, w io.Writer, still func(context.Context) error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		if err := s.mon.begin(ctx, false); err != nil {
			return err
		}
		s.begun = true
	}
	if err := errors.Join(s.mon.capabilities(ctx, false), s.mon.do(ctx, "migrate-set-parameters", arguments{"max-bandwidth": saveBandwidth})); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnWait)
		defer cancel()
		err = errors.Join(err, s.mon.do(ctx, "cont", nil))
	}()
	if err := s.mon.do(ctx, "stop", nil); err != nil {
		return err
	}
	if err := s.write(ctx, w); err != nil {
		return err
	}
	return still(ctx)
}

// write writes the state of the machine, which is stopped.
func (s *saver) write(ctx context.Context, w io.Writer) error {
	r, state, err := os.Pipe()
	if err != nil {
		return err
	}
	widenPipe(r)
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(onlyWriter{w}, onlyReader{r}, make([]byte, copyBytes))
		copied <- errors.Join(err, r.Close()) // where w takes no more, QEMU's migration fails
	}()
	err = s.mon.migrate(ctx, state)
	err = errors.Join(err, state.Close())
	if err != nil {
		_ = r.SetReadDeadline(time.Unix(1, 0)) // QEMU may have its end still, and wait for a reader
	}
	if wrong := <-copied; wrong != nil && !errors.Is(wrong, os.ErrDeadlineExceeded) {
		err = errors.Join(wrong, err)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, s.abandon(ctx))
	}
	return err
}

// abandon ends a migration whose time is over, so that the guest can go on.
func (s *saver) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnWait)
	defer cancel()
	if err := s.mon.do(ctx, "migrate_cancel", nil); err != nil {
		return err
	}
	return s.mon.await(ctx, "MIGRATION", "cancelled", "failed", "completed")
}

// widenPipe leaves the file non-blocking, so that deadlines hold.
func widenPipe(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, copyBytes) }) // a smaller one is only slower
	}
}

// onlyWriter and onlyReader keep io.CopyBuffer from other methods, which would read in small pieces.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
