package runner

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
)

// TestDamagedProgramsNeedNothing reads a program whose tables are cut or wrong: what is read of it stays within bounds.
func TestDamagedProgramsNeedNothing(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("/proc/self/exe")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no program of ELF's on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := needsOf(bytes.NewReader(program)); err != nil {
		t.Fatalf("this program: %v", err)
	}
	for _, size := range []int{0, 3, 4, 63, 64, 65, 500} {
		if n, err := needsOf(bytes.NewReader(program[:size])); err == nil {
			t.Errorf("%d bytes of a program need %+v", size, n)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		damaged := bytes.Clone(program[:4096])
		for range 1 + r.IntN(4) {
			damaged[r.IntN(1024)] = byte(r.Uint32())
		}
		n, err := needsOf(bytes.NewReader(append(damaged, program[4096:64<<10]...)))
		if err == nil && len(n.names) > maxDynamic/dynamicBytes {
			t.Errorf("a damaged program needs %d others", len(n.names))
		}
	}
}
