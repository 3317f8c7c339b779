package qemu

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/vm"
)

const (
	// maxTemplates bounds the saved machines of a cache; one has some 50 MB.
	maxTemplates = 8
	// giveUp is how long machines of a kind that could not be saved or restored
	// are started without trying again.
	giveUp = time.Hour
)

const (
	templatePrefix = "warm-"
	failedSuffix   = ".failed"
)

// templatePath names the file of the Spec's kind of machine by everything that
// its state depends on.
func (b *Backend) templatePath(spec *vm.Spec) (string, error) {
	binary, err := b.find()
	if err != nil {
		return "", err
	}
	image, err := b.kernel()
	if err != nil {
		return "", err
	}
	kind := blank(spec, make([]string, len(spec.Disks)-1))
	if kind.Net != nil {
		kind.Net = &vm.Net{MAC: blankMAC}
	}
	cpu, err := b.guestProcessor()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "3\x00%q\x00%q\x00", cpu, args(binary, image, spec.KernelCmdline(), &kind, b.accel(), fds{memory: 1, monitor: 1}))
	for _, d := range spec.Disks[1:] {
		info, err := os.Stat(d.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d\x00", info.Size())
	}
	for _, path := range append(modules(binary), binary, image, spec.Disks[0].Path) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%d:%d:%d:%d\x00", path, st.Dev, st.Ino, st.Size, st.Mtim.Nano())
	}
	return filepath.Join(b.config.CacheDir, templatePrefix+hex.EncodeToString(h.Sum(nil)[:12])), nil
}

// template opens the template at path, made when it is missing, was damaged or
// is of another clock.
func (b *Backend) template(ctx context.Context, path string, spec *vm.Spec) (*template, *os.File, error) {
	for attempt := 0; ; attempt++ {
		made := false
		err := cachefile.Ensure(path, func(w io.Writer) error {
			made = true
			return b.save(ctx, spec, w)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("save a machine: %w", err)
		}
		if made {
			b.dropOld(path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		t, err := readTemplate(bufio.NewReader(f))
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		if attempt > 0 || b.tsc.is(t.TSC) {
			return t, f, nil
		}
		if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
			return nil, nil, err
		}
	}
}

// readMemory copies the memory out of the template's file to one as large as the machine's. The kernel copies it once; by way
// of this process it would twice, and the memory of a machine is most of what a copy has to read.
func (t *template) readMemory(file, memory *os.File, size int64) error {
	from := t.memoryAt
	for _, e := range t.Extents {
		if e.Offset < 0 || e.Length <= 0 || e.Length > size || e.Offset > size-e.Length {
			return fmt.Errorf("%w: memory of %d bytes at %d", errTemplate, e.Length, e.Offset)
		}
		if _, err := memory.Seek(e.Offset, io.SeekStart); err != nil {
			return err
		}
		for left := e.Length; left > 0; {
			n, err := unix.Sendfile(int(memory.Fd()), int(file.Fd()), &from, int(min(left, maxSend)))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return os.NewSyscallError("sendfile", err)
			}
			if n == 0 {
				return fmt.Errorf("%w: %w", errTemplate, io.ErrUnexpectedEOF)
			}
			left -= int64(n)
		}
	}
	return nil
}

// maxSend is how much the kernel is asked to copy at a time.
const maxSend = 1 << 30

// dropOld removes the oldest saved machines beyond maxTemplates, but not kept.
func (b *Backend) dropOld(kept string) {
	list, err := filepath.Glob(filepath.Join(b.config.CacheDir, templatePrefix+"*"))
	if err != nil {
		return
	}
	age := make(map[string]time.Time)
	for _, path := range list {
		info, err := os.Lstat(path)
		if err == nil && path != kept && !strings.Contains(filepath.Base(path), ".") {
			age[path] = info.ModTime()
		}
	}
	oldest := slices.SortedFunc(func(yield func(string) bool) {
		for path := range age {
			if !yield(path) {
				return
			}
		}
	}, func(a, b string) int { return age[a].Compare(age[b]) })
	for i := 0; i+maxTemplates-1 < len(oldest); i++ {
		_ = os.Remove(oldest[i])
		_ = os.Remove(oldest[i] + cachefile.SumSuffix)
		left, _ := filepath.Glob(oldest[i] + shareInfix + "*") // who serves one goes on without
		for _, path := range left {
			_ = os.Remove(path)
		}
	}
}
