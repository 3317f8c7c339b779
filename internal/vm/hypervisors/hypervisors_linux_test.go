package hypervisors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// TestMain can't run as a VMM, as msb can: what starts here starts in the program that is built in.
func TestMain(m *testing.M) {
	if err := vmtest.FindLibraries(); err != nil || len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__") {
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestQEMUStartsInTheBuiltInProgram with a program in QEMU's place that only says which one it is.
func TestQEMUStartsInTheBuiltInProgram(t *testing.T) {
	if p, err := assets.VMM().Packed(); err != nil {
		t.Skip(err)
	} else if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	disk := filepath.Join(dir, "disk")
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), busybox, 0o700), os.WriteFile(disk, make([]byte, 512), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	spec := vm.Spec{CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: disk, ReadOnly: true, ID: "root"}}}
	m, err := All(dir)[1].Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(t.Context()); !errors.Is(err, vm.ErrVMM) || !strings.Contains(err.Error(), "applet not found") {
		t.Errorf("it ended with %v, want busybox' words", err)
	}
}
