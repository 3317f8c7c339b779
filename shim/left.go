package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// leftFile is in a bundle, for whoever cleans up after a shim that was killed.
const leftFile = "msb.json"

// left says what of a container may be left when its shim was killed.
type left struct {
	// Home is msb's state directory, Machine the directory in it of the machine that was booted for this container.
	Home    string `json:"home"`
	Machine string `json:"machine,omitempty"`
	// Booting tells that a machine was being booted, whose directory isn't known yet.
	Booting bool `json:"booting,omitempty"`
	// Group is the machine's control group on the node.
	Group controlGroup `json:"group,omitempty"`
	// Exited is how the container's first process ended.
	Exited *leftExit `json:"exited,omitempty"`
}

type leftExit struct {
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
}

// readLeft reads what a shim wrote; of a bundle in which none did, or that has gone, nothing is left.
func readLeft(bundle string) (l left, err error) {
	b, err := os.ReadFile(filepath.Join(bundle, leftFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	return l, err
}

func (l left) write(bundle string) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(bundle, leftFile), b, 0o600)
}

// The machine of a shim that was killed ends by itself; cleaning waits for it no longer than this.
const (
	cleanWait = 20 * time.Second
	cleanTick = 50 * time.Millisecond
)

// clean removes what the machine left in msb's state directory, once its supervisor has gone.
func (l left) clean(ctx context.Context) error {
	if l.Booting { // the machine ends with the shim, and the group is empty then
		err := l.Group.remove()
		_, swept := sandbox.OpenHome(l.Home)
		return errors.Join(err, swept)
	}
	if l.Machine == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanWait)
	defer cancel()
	tick := time.NewTicker(cleanTick)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(l.Machine); errors.Is(err, fs.ErrNotExist) {
			return l.Group.remove()
		}
		// Opening sweeps what no process holds any more.
		if _, err := sandbox.OpenHome(l.Home); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the machine in %s has not ended: %w", l.Machine, ctx.Err())
		}
	}
}

// mountRoot makes the snapshotter's mounts at the bundle's rootfs, and returns it.
func mountRoot(bundle string, mounts []mount.Mount) (string, error) {
	root := filepath.Join(bundle, "rootfs")
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := mount.All(mounts, root); err != nil {
		return "", errors.Join(fmt.Errorf("mounting the root of the container: %w", err), unmountRoot(bundle))
	}
	return root, nil
}

// unmountRoot undoes mountRoot; where nothing is mounted it does nothing. What is still served to a guest that doesn't give it back
// is detached, and goes with the machine: nobody would come back for it.
func unmountRoot(bundle string) error {
	root := filepath.Join(bundle, "rootfs")
	err := mount.UnmountRecursive(root, 0)
	if errors.Is(err, unix.EBUSY) {
		err = mount.UnmountRecursive(root, unix.MNT_DETACH)
	}
	return err
}

// mountsOf are a container's root as the mount package wants it.
func mountsOf(all []*types.Mount) (out []mount.Mount) {
	for _, m := range all {
		out = append(out, mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return out
}
