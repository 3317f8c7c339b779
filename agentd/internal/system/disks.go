//go:build linux

package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Disk names a block device: by virtio serial, or else by kernel name.
type Disk struct{ Serial, Device string }

// isDisk keeps a name from the host to whole virtio disks of /dev.
func isDisk(name string) bool {
	letters, ok := strings.CutPrefix(name, "vd")
	return ok && (len(letters) == 1 || len(letters) == 2) && strings.Trim(letters, "abcdefghijklmnopqrstuvwxyz") == ""
}

// diskWait is how long a device may take to appear after boot. With virtio-mmio
// they are there before PID 1 starts.
const diskWait = time.Second

func (d Disk) String() string {
	if d.Serial != "" {
		return fmt.Sprintf("the disk with serial %q", d.Serial)
	}
	return fmt.Sprintf("the disk %q", d.Device)
}

// Find returns the device file.
func (d Disk) Find(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if dev := d.lookup("/sys/block"); dev != "" {
			return "/dev/" + dev, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s is not there; the machine was started with other disks than the handshake names", d)
		case <-tick.C:
		}
	}
}

// serialOf returns the virtio serial of a disk, or "".
func serialOf(sysBlock, name string) string {
	b, _ := os.ReadFile(filepath.Join(sysBlock, name, "serial")) // there is none
	return strings.TrimSpace(string(b))
}

func (d Disk) lookup(sysBlock string) string {
	if d.Serial != "" {
		if isDisk(d.Device) && serialOf(sysBlock, d.Device) == d.Serial {
			return d.Device // as almost always: a copy of a saved machine then needs no list of disks
		}
		files, _ := filepath.Glob(filepath.Join(sysBlock, "vd*", "serial")) // a constant pattern
		for _, f := range files {
			if name := filepath.Base(filepath.Dir(f)); serialOf(sysBlock, name) == d.Serial {
				return name
			}
		}
	}
	if isDisk(d.Device) {
		if _, err := os.Stat(filepath.Join(sysBlock, d.Device)); err == nil {
			return d.Device
		}
	}
	return ""
}
