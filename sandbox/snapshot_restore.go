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

// Restore puts the disk of a snapshot in place of that of the sandbox that it was taken of, which must be stopped.
// name is what the sandbox is called now; "" is as it was called then. The sandbox stays what it is: its policy, variables,
// ports, placeholders and authority are those that it has now. Its jobs go. ErrSnapshotOf for any other sandbox. Killed at
// any time it leaves the old disk or the new one.
func (ss Snapshots) Restore(ctx context.Context, snapshot, name string) error {
	return Fail(ss.restore(ctx, snapshot, name))
}

func (ss Snapshots) restore(ctx context.Context, snapshot, name string) error {
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
	return changeNamed(ctx, ss.home, name, func(run *runDir, st *state.Stored) error {
		if meta.Imported || !st.Created.Equal(meta.Config.Created) {
			return fmt.Errorf("%w than %s: %s; `msb clone %s NEWNAME` makes one from it", ErrSnapshotOf, name, snapshot, snapshot)
		}
		if err := clearRun(ss.home, run.dir); err != nil { // its machine may still write to the disk
			return err
		}
		fresh := filepath.Join(run.dir, state.NewUpperDisk)
		if err := state.UnlessGone(os.Remove(fresh)); err != nil { // from a restore that was killed
			return err
		}
		meta, err := store.WriteDisk(ctx, snapshot, fresh)
		if err != nil {
			return err
		}
		err = syncFile(fresh) // the disk before it is gone then
		if err == nil {
			err = takeBack(run, st, meta)
		}
		if err != nil {
			return errors.Join(err, os.Remove(fresh))
		}
		if err := os.Rename(fresh, filepath.Join(run.dir, state.UpperDisk)); err != nil {
			return err
		}
		return errors.Join(writeOrigin(run.dir, snapshot, meta), state.RemoveJobs(filepath.Join(run.dir, state.JobsDir)))
	})
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// takeBack has the next start make a new identity if the disk is of before the sandbox had one. It is written before the
// disk is there, or a kill between would bring another sandbox's back.
func takeBack(run *runDir, st *state.Stored, meta *diskstore.Meta) error {
	if !meta.Config.NewIdentity {
		return nil
	}
	st.NewIdentity, st.ForgetCA = true, meta.Config.ForgetCA
	return state.WriteJSON(run.dir, state.StoredFile, st)
}
