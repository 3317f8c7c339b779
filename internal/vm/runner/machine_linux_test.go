package runner

import (
	"strings"
	"testing"
)

// TestPanicsAreToldFromTheirReason: the line that says why comes first, before registers and trace, however much they are.
func TestPanicsAreToldFromTheirReason(t *testing.T) {
	t.Parallel()
	const boot, end = "[    0.1] Linux version 6\n[    0.2] x86/fpu: on\n", "[    2.2] Kernel panic - not syncing: Fatal exception in interrupt\n"
	registers := strings.Repeat("[    2.1] R13: 0000000000000cc0 R14: 0000000000000000\n", 100)
	for name, tt := range map[string]struct{ console, begins string }{
		"panic alone":        {boot + end, "[    2.2] Kernel panic"},
		"page fault":         {boot + "[    2.0] BUG: unable to handle page fault\n[    2.0] Oops: 0000 [#1] SMP\n" + registers + end, "[    2.0] BUG: unable"},
		"second exception":   {boot + "[    2.0] BUG: unable to handle page fault\n[    2.0] Oops: 0000 [#1] SMP\n" + registers + "[    2.1] BUG: scheduling while atomic\n[    2.1] Oops: 0000 [#1] SMP\n" + end, "[    2.0] BUG: unable"},
		"other exception":    {boot + "[    2.0] int3: 0000 [#1] SMP\n[    2.0] CPU: 0\n" + registers + end, "[    2.0] int3"},
		"protection":         {boot + "[    2.0] general protection fault, maybe for address 0x7\n[    2.0] [#1]\n" + registers + end, "[    2.0] general"},
		"without a new line": {end, end},
		"long":               {boot + "[    2.0] BUG: x\n" + strings.Repeat(registers, 10) + end, "[    2.0] BUG: x"},
	} {
		got := panicText(tt.console)
		if !strings.HasPrefix(got, tt.begins) || !strings.HasSuffix(got, end) || len(got) > panicTail+len("\n...\n") {
			t.Errorf("%s: %d bytes: %.300q ... %q", name, len(got), got, got[max(0, len(got)-100):])
		}
	}
}
