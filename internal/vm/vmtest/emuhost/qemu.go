//go:build linux

package emuhost

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

// firmware are the files that QEMU's microvm machine loads: with a kernel that it boots, and with a state instead of one.
var firmware = []string{"bios-microvm.bin", "qboot.rom", "linuxboot_dma.bin", "pvh.bin"}

// WithQEMU adds QEMU to a host's files, which runs guests on KVM there. It must be on the path of hosts, /bin:/usr/bin.
func WithQEMU(t testing.TB, files map[string]string) map[string]string {
	t.Helper()
	binary, err := vm.FindQEMU()
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(files)
	all[binary] = binary
	prefix := filepath.Dir(filepath.Dir(binary))
	found := 0
	for _, name := range firmware {
		for _, dir := range []string{filepath.Join(prefix, "share", "qemu"), "/usr/share/qemu", "/usr/share/seabios", "/usr/share/qboot"} {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err == nil {
				all[path] = path
				found++
			}
		}
	}
	if found < len(firmware) {
		t.Fatalf("%d of QEMU's files %q", found, firmware)
	}
	return all
}
