package vm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEmulatedCPUsAreKnown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu\n": true,
		"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.60GHz\n":            false,
		"processor\t: 0\nmodel name\t: QEMU Virtual CPU version 2.5+\n":                                        false, // under KVM
		"": false,
	} {
		path := filepath.Join(t.TempDir(), "cpuinfo")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := emulated(path); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if emulated(filepath.Join(t.TempDir(), "none")) {
		t.Error("without a description")
	}
}
