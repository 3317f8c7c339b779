package state

import (
	"errors"
	"fmt"
)

// Errors about snapshots.
var (
	ErrSnapshotName    = errors.New("unusable snapshot name")
	ErrNoSnapshot      = errors.New("there is no such snapshot")
	ErrSnapshotExists  = errors.New("the snapshot exists already")
	ErrSnapshotDamaged = errors.New("the snapshot is damaged")
	ErrSnapshotArchive = errors.New("not the archive of a snapshot, or a damaged one")
	ErrSnapshotOf      = errors.New("the snapshot is of another sandbox")
)

// CheckSnapshotName says whether a snapshot may have this name: it becomes a directory's (invariant 14).
func CheckSnapshotName(name string) error {
	if CheckName(name) != nil {
		const shown = 80
		return fmt.Errorf("%w %.*q: use 1 to %d lower-case letters, digits and hyphens, such as web-1", ErrSnapshotName, shown, name, MaxNameLen)
	}
	return nil
}
