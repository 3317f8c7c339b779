package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/bench/internal/figures"
)

// disks measures snapshots and clones of a sandbox whose disk a guest has filled, on a file system, tmp or xfs, and ssh
// while the guest runs.
func (o *options) disks(ctx context.Context, dir, system string, set *figures.Set) (err error) {
	h := home{dir, o.msb}
	const name, copied, taken = "one", "copy", "taken"
	progress("a disk of 1 GiB on %s", system)
	if err := h.all(ctx, []string{"create", "-q", "--vm", "qemu", "--no-net", "--disk", "1G", name}, []string{"start", "-q", name}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, h.all(context.WithoutCancel(ctx), []string{"rm", "-f", name}))
	}()
	if _, _, err := h.run(ctx, "exec", name, "--", "dd", "if=/dev/urandom", "of=/random", "bs=1M", "count="+strconv.Itoa(o.data)); err != nil {
		return err
	}
	if err := o.trips(ctx, h, name, set); err != nil {
		return fmt.Errorf("ssh: %w", err)
	}
	if err := h.all(ctx, []string{"stop", name}); err != nil {
		return err
	}
	disk := filepath.Join(dir, "sandboxes", name, "upper.ext4")
	onDisk := "/disk=1GiB/on=" + system
	for range o.rounds {
		progress("snapshot and clone on %s", system)
		steps := []struct {
			what, subject string
			program       string // msb where it is empty
			args          []string
		}{
			{"snapshot", figures.OfMsb, "", []string{"snapshot", "create", name, taken}},
			{"snapshot again", figures.OfMsb, "", []string{"snapshot", "create", name, taken + "-again"}},
			{"snapshot", "cp", "cp", []string{"--sparse=always", "--reflink=never", disk, filepath.Join(dir, "cp")}},
			{"clone", figures.OfMsb, "", []string{"clone", name, copied}},
			{"clone", "cp", "cp", []string{"--sparse=always", "--reflink=auto", disk, filepath.Join(dir, "reflink")}},
			{"clone of a snapshot", figures.OfMsb, "", []string{"clone", taken, copied + "-of-snapshot"}},
			{"restore", figures.OfMsb, "", []string{"snapshot", "restore", taken}},
		}
		for _, s := range steps {
			program, env := s.program, []string(nil)
			if program == "" {
				program, env = h.msb, []string{"MSB_HOME=" + h.dir}
			}
			unix.Sync() // what the step before has written
			took, _, err := run(ctx, env, program, s.args...)
			if err != nil {
				return err
			}
			set.Add("Life/"+s.what+onDisk, s.subject, figures.Seconds, took.Seconds())
		}
		if err := h.all(ctx, []string{"rm", copied, copied + "-of-snapshot"}, []string{"snapshot", "rm", taken, taken + "-again"}); err != nil {
			return err
		}
		if err := errors.Join(os.Remove(filepath.Join(dir, "cp")), os.Remove(filepath.Join(dir, "reflink"))); err != nil {
			return err
		}
	}
	return nil
}

// trips measures what one command costs through ssh's client and through msb exec.
func (o *options) trips(ctx context.Context, h home, name string, set *figures.Set) error {
	if _, err := exec.LookPath("ssh"); err != nil {
		return err
	}
	for i := range 4*o.rounds + 1 {
		for subject, args := range map[string][]string{figures.OfMsb: {"ssh", name, "true"}, "msb exec": {"exec", name, "--", "true"}} {
			took, _, err := h.run(ctx, args...)
			if err != nil {
				return err
			}
			if i > 0 { // the first makes keys, and reads programs from the disk
				set.Add("Life/ssh", subject, figures.Seconds, took.Seconds())
			}
		}
	}
	return nil
}

// mountXFS makes a file system whose files can share blocks.
func mountXFS(ctx context.Context, dir string) (mount string, unmount func() error, err error) {
	image, mount := filepath.Join(dir, "xfs.image"), filepath.Join(dir, "xfs")
	if err := os.Mkdir(mount, 0o700); err != nil {
		return "", nil, err
	}
	f, err := os.OpenFile(image, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(f.Truncate(12<<30), f.Close()); err != nil {
		return "", nil, err
	}
	if _, _, err := run(ctx, nil, "mkfs.xfs", "-q", "-m", "reflink=1", image); err != nil {
		return "", nil, err
	}
	if _, _, err := run(ctx, nil, "mount", "-o", "loop", image, mount); err != nil {
		return "", nil, err
	}
	return mount, func() error { return syscall.Unmount(mount, 0) }, nil
}
