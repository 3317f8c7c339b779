package main

import (
	"context"
	"fmt"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// fullRoot is how little room, in bytes, makes a root full.
	fullRoot = 1 << 20
	// statsWait bounds the question after a command that failed: a guest may not answer.
	statsWait = 2 * time.Second
)

// hintAtRoom says what helps if the command failed in a guest whose root is full.
func hintAtRoom(ctx context.Context, ui *ui, sb *sandbox.Sandbox, f *runFlags) {
	ctx, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	st, err := sb.Stats(ctx)
	if err != nil || st.RootTotalBytes <= 0 || st.RootAvailableBytes >= fullRoot {
		return
	}
	ui.note("%s", roomRemedy(st.RootTotalBytes, sb.Name() != "" || f.disk != ""))
}

// warnAtHostRoom says that this machine's disk is full, which a guest learns when it writes back at the earliest: the
// command may have succeeded.
func warnAtHostRoom(ui *ui, sb *sandbox.Sandbox) {
	if free, err := sb.HostRoom(); err == nil && free < sandbox.MinHostRoom {
		ui.warn("the disk with msb's state has %d KiB free: what the guest writes to its own fails or is lost; free some space there", free>>10)
	}
}

// roomRemedy is the sentence on a root of so many bytes that is full.
func roomRemedy(total int64, onDisk bool) string {
	if onDisk {
		return fmt.Sprintf("the guest's disk is full (%d MiB); make the sandbox with a larger one, such as --disk 20G", total>>20)
	}
	return fmt.Sprintf("the guest's root is full (%d MiB, half of its memory); --disk 10G puts what it writes on a disk, -m gives it more memory", total>>20)
}
