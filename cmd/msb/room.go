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
	// statsWait bounds the wait for the guest's figures after a failed command: a guest may not answer.
	statsWait = 2 * time.Second
)

// hintAtRoom adds a remedy if the command failed and the guest's root is full.
func hintAtRoom(ctx context.Context, ui *ui, sb *sandbox.Sandbox, f *runFlags) {
	ctx, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	st, err := sb.Stats(ctx)
	if err != nil || st.RootTotalBytes <= 0 || st.RootAvailableBytes >= fullRoot {
		return
	}
	ui.note("%s", roomRemedy(st.RootTotalBytes, sb.Name() != "" || f.disk != ""))
}

// warnAtHostRoom warns that this machine's disk is full. The guest notices only when it writes back, so the command may
// have succeeded.
func warnAtHostRoom(ui *ui, sb *sandbox.Sandbox) {
	if free, err := sb.HostRoom(); err == nil && free < sandbox.MinHostRoom {
		ui.warn("the disk with msb's state has %d KiB free: what the guest writes to its own fails or is lost; free some space there", free>>10)
	}
}

// roomRemedy is the remedy for a full root of that size.
func roomRemedy(total int64, onDisk bool) string {
	if onDisk {
		return fmt.Sprintf("the guest's disk is full (%d MiB); make the sandbox with a larger one, such as --disk 20G", total>>20)
	}
	return fmt.Sprintf("the guest's root is full (%d MiB, half of its memory); --disk 10G puts what it writes on a disk, -m gives it more memory", total>>20)
}
