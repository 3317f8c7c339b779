//go:build linux && amd64

package qemu

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

func TestProbeNamesWhatIsMissing(t *testing.T) {
	noKVM := func() error { return vm.ErrKVMMissing }
	gone := func() (string, error) { return "", vm.ErrQEMUMissing }
	tests := []struct {
		name   string
		config Config
		want   error
		note   string
	}{
		{name: "emulation", config: Config{probeKVM: noKVM}, note: "by emulation"},
		{name: "on KVM", config: Config{probeKVM: func() error { return nil }}, note: "on KVM"},
		{name: "no QEMU", config: Config{probeKVM: noKVM, find: gone}, want: vm.ErrQEMUMissing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := New(tt.config)
			r := b.Probe(t.Context())
			if r.Usable != (tt.want == nil) || !strings.Contains(r.Note, tt.note) {
				t.Errorf("probe: %+v", r)
			}
			if _, _, err := vm.Select(t.Context(), "qemu", b); !errors.Is(err, tt.want) {
				t.Errorf("select: %v, want %v", err, tt.want)
			}
		})
	}
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	gone := func() (string, error) { return "", vm.ErrQEMUMissing }
	b := New(Config{CacheDir: t.TempDir(), find: gone})
	if _, err := b.Start(t.Context(), suiteSpec(t)); !errors.Is(err, vm.ErrQEMUMissing) {
		t.Errorf("start: %v, want ErrQEMUMissing", err)
	}
}

func TestPathsCannotAddOptions(t *testing.T) {
	t.Parallel()
	spec := &vm.Spec{CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: "/a,readonly=off,b", ID: "root", ReadOnly: true}}}
	argv := args("/qemu", "/kernel", spec.KernelCmdline(), spec, emulated, fds{agent: 6, console: 7})
	want := "id=d0,if=none,format=raw,readonly=on,file.locking=off,file=/a,,readonly=off,,b"
	if !slices.Contains(argv, want) {
		t.Errorf("argv %q lacks %q", argv, want)
	}
}

// TestEmulatedKernelsDoWithoutCMPXCHG16B: QEMU gets its flags wrong; where the CPU is a real one, kernels have it.
func TestEmulatedKernelsDoWithoutCMPXCHG16B(t *testing.T) {
	t.Parallel()
	spec := &vm.Spec{CPUs: 1, MemoryMiB: 128}
	for a, want := range map[accel]bool{emulated: true, emulatedInTurn: true, onKVM: vm.Emulated()} {
		argv := args("/qemu", "/kernel", "console=x", spec, a, fds{agent: 6, console: 7})
		if got := slices.Contains(argv, "console=x clearcpuid=cx16"); got != want {
			t.Errorf("%v of %q is %v, want %v", a, argv, got, want)
		}
	}
}
