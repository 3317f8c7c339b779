package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Restore replaces the disk of a stopped sandbox by that of a snapshot that was taken of it. name is the sandbox's current
// name; "" is its name at the time of the snapshot. The sandbox keeps its current policy, variables, ports, placeholders
// and authority; its jobs are removed. Of a snapshot with the memory, the next start goes on from that, once. ErrSnapshotOf
// for any other sandbox. A kill at any time leaves the old disk, with the memory that it had, or the new one with its own.
func (ss Snapshots) Restore(ctx context.Context, snapshot, name string) error {
	return Fail(ss.restore(ctx, snapshot, name, true))
}

// RestoreDisk is Restore without the memory: the next start boots, and finds the disk as after a loss of power.
func (ss Snapshots) RestoreDisk(ctx context.Context, snapshot, name string) error {
	return Fail(ss.restore(ctx, snapshot, name, false))
}

func (ss Snapshots) restore(ctx context.Context, snapshot, name string, memory bool) error {
	store, err := ss.store()
	if err != nil {
		return err
	}
	meta, err := store.LoadMeta(snapshot)
	if err != nil {
		return err
	}
	if name == "" {
		name = meta.Config.Name
	}
	other := func(st *state.Stored) error {
		if meta.Imported || !st.Created.Equal(meta.Config.Created) {
			return fmt.Errorf("%w than %s: %s; `msb clone %s NEWNAME` makes one from it", ErrSnapshotOf, name, snapshot, snapshot)
		}
		return nil
	}
	st, err := loadStored(ss.home, name) // before a running sandbox is said to be in the way
	switch {
	case errors.Is(err, ErrNoSandbox):
		return fmt.Errorf("%w: %s; `msb clone %s NEWNAME` makes one from the snapshot, and `msb ls` lists those there are", ErrNoSandbox, name, snapshot)
	case err != nil:
		return err
	}
	if err := other(st); err != nil {
		return err
	}
	return changeNamed(ctx, ss.home, name, func(run *runDir, st *state.Stored) error {
		if err := other(st); err != nil {
			return err
		}
		if err := clearRun(ss.home, run.dir); err != nil { // its machine may still write to the disk
			return err
		}
		fresh := filepath.Join(run.dir, state.NewUpperDisk)
		if err := state.UnlessGone(os.Remove(fresh)); err != nil { // from a restore that was killed
			return err
		}
		if err := dropMemories(run.dir); err != nil {
			return err
		}
		meta, err := store.WriteDisk(ctx, snapshot, fresh)
		if err != nil {
			return err
		}
		beside := ""
		if memory && meta.Memory > 0 && !meta.Config.NewIdentity {
			beside, err = placeMemory(ctx, store, snapshot, meta, fresh)
		}
		if err == nil {
			err = syncFile(fresh) // the disk before it is gone then
		}
		if err == nil {
			err = takeBack(run, st, meta)
		}
		if err == nil {
			err = os.Rename(fresh, filepath.Join(run.dir, state.UpperDisk))
		}
		if err != nil {
			return errors.Join(err, state.UnlessGone(os.Remove(fresh)), dropMemories(run.dir))
		}
		return errors.Join(state.RemoveMemories(run.dir, beside), writeOrigin(run.dir, snapshot, meta), state.RemoveJobs(filepath.Join(run.dir, state.JobsDir)))
	})
}

// placeMemory puts a snapshot's memory beside the disk that is about to take its place, and returns its name. It is no
// memory of the disk before, and is none at all without the new one.
func placeMemory(ctx context.Context, store *diskstore.Store, snapshot string, meta *diskstore.Meta, disk string) (string, error) {
	name, err := state.PairWithMemory(disk)
	if err == nil {
		err = store.PlaceMemory(ctx, snapshot, meta, filepath.Join(filepath.Dir(disk), name))
	}
	return name, err
}

// dropMemories removes memories that are not of the disk that is there.
func dropMemories(dir string) error {
	path, err := state.FindMemory(dir)
	if err != nil {
		return err
	}
	return state.RemoveMemories(dir, filepath.Base(path))
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// takeBack makes the next start create a new identity if the disk is from before the sandbox had its own. It is stored
// before the disk is replaced, since a kill in between would bring back another sandbox's identity.
func takeBack(run *runDir, st *state.Stored, meta *diskstore.Meta) error {
	if !meta.Config.NewIdentity {
		return nil
	}
	st.NewIdentity, st.ForgetCA = true, meta.Config.ForgetCA
	return state.WriteJSON(run.dir, state.StoredFile, st)
}
