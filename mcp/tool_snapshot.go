package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// maxSnapshots bounds the snapshots of one policy file's agents. Each takes at most a sandbox's disk.
	maxSnapshots = 8
	// snapshotLabel is the label of a snapshot with the label of the sandbox that it was taken of.
	snapshotLabel = "mcp.label"
)

// ownSnapshots are the snapshots of one server's sandboxes.
type ownSnapshots struct{ *boxes }

// snapshots are those that were taken under the current floor: others may hold settings that it forbids. Imported ones are
// left out, whatever their label is.
func (b ownSnapshots) snapshots() ([]sandbox.Snapshot, error) {
	all, err := b.opts.Home.Snapshots().List()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s sandbox.Snapshot) bool { return s.Imported || s.Labels[snapshotLabel] != b.label }), nil
}

// snapshot is the one of that name, if this server may use it.
func (b ownSnapshots) snapshot(name string) (*sandbox.Snapshot, error) {
	all, err := b.snapshots()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s sandbox.Snapshot) bool { return s.Name == name })
	if i < 0 {
		return nil, say("no such snapshot: %s; snapshot_list shows those that there are", printed(name))
	}
	return &all[i], nil
}

func (b ownSnapshots) takeSnapshot(ctx context.Context, box, name string) (string, error) {
	st, err := b.own(box, false)
	if err != nil {
		return "", err
	}
	free, err := b.reserveSnapshot()
	if err != nil {
		return "", err
	}
	defer free()
	taken, err := b.only(st).Snapshots().Create(ctx, st.Name, sandbox.SnapshotOptions{Name: name, Labels: map[string]string{snapshotLabel: b.label}})
	if errors.Is(err, sandbox.ErrSnapshotExists) {
		return "", fmt.Errorf("%w: %s; choose another name", sandbox.ErrSnapshotExists, printed(name))
	}
	if err != nil {
		return "", err
	}
	// Another server on this state directory may have taken one at the same time.
	if all, err := b.snapshots(); err != nil || len(all) > maxSnapshots {
		return "", errors.Join(err, tooManySnapshots(len(all)-1), b.opts.Home.Snapshots().Remove(taken.Name))
	}
	return fmt.Sprintf("snapshot %s has the disk of sandbox %s; programs and memory are not in it", taken.Name, st.Name), nil
}

func tooManySnapshots(there int) error {
	return say("there are %d snapshots, and at most %d may be; remove one with snapshot_remove", there, maxSnapshots)
}

// reserveSnapshot takes a place for a snapshot that is being taken, which may take long.
func (b ownSnapshots) reserveSnapshot() (free func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, err := b.snapshots()
	if err != nil {
		return nil, err
	}
	if there := len(all) + b.taking; there >= maxSnapshots {
		return nil, tooManySnapshots(there)
	}
	b.taking++
	return func() { b.mu.Lock(); b.taking--; b.mu.Unlock() }, nil
}

// snapshotRow is a snapshot as a client sees it.
type snapshotRow struct {
	Name    string    `json:"name"`
	Sandbox string    `json:"sandbox"`
	Image   string    `json:"image"`
	Created time.Time `json:"created"`
	DataMB  int64     `json:"data_mb"`
}

func (b ownSnapshots) listSnapshots() (string, error) {
	all, err := b.snapshots()
	if err != nil {
		return "", err
	}
	rows := make([]snapshotRow, 0, len(all))
	for i := range all {
		s := &all[i]
		rows = append(rows, snapshotRow{s.Name, s.Sandbox, s.Image, s.Created, s.Data >> 20})
	}
	return asJSON(map[string]any{"snapshots": rows, "max_snapshots": maxSnapshots})
}

// restore replaces the disk of a sandbox by that of a snapshot that was taken of it.
func (b ownSnapshots) restore(ctx context.Context, snapshot, box string) (string, error) {
	st, err := b.own(box, false)
	if err != nil {
		return "", err
	}
	s, err := b.snapshot(snapshot)
	if err != nil {
		return "", err
	}
	if err := staysWhenStopped(st); err != nil {
		return "", err
	}
	if err := b.only(st).Stop(ctx, st.Name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
		return "", err
	}
	err = b.only(st).Snapshots().Restore(ctx, s.Name, st.Name)
	if errors.Is(err, sandbox.ErrSnapshotOf) {
		return "", fmt.Errorf("%w: snapshot %s is of another sandbox than %s; sandbox_clone makes a new one from it", sandbox.ErrSnapshotOf, s.Name, st.Name)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sandbox %s has the disk of snapshot %s; its jobs ended, and its next use starts it", st.Name, s.Name), nil
}

func (b ownSnapshots) removeSnapshot(name string) (string, error) {
	s, err := b.snapshot(name)
	if err == nil {
		err = b.opts.Home.Snapshots().Remove(s.Name)
	}
	if err != nil {
		return "", err
	}
	return "snapshot " + s.Name + " removed", nil
}

// clone makes a sandbox from another one or from a snapshot. It has the same floor, policy and bounds, and counts as a
// sandbox.
func (b ownSnapshots) clone(ctx context.Context, box, snapshot, to string) (string, error) {
	if box != "" && snapshot != "" {
		return "", wrong("give sandbox or snapshot, not both")
	}
	if to == defaultName {
		to = b.defaultName()
	}
	var makeIt func() error
	if snapshot != "" {
		s, err := b.snapshot(snapshot)
		if err != nil {
			return "", err
		}
		makeIt = func() error {
			return b.opts.Home.Snapshots().Clone(ctx, s.Name, to, sandbox.CloneOptions{Label: b.label})
		}
	} else {
		st, err := b.own(box, false)
		if err != nil {
			return "", err
		}
		makeIt = func() error { return b.only(st).Clone(ctx, st.Name, to, sandbox.CloneOptions{Label: b.label}) }
	}
	free, err := b.reserve()
	if err != nil {
		return "", err
	}
	defer free()
	if err := makeIt(); errors.Is(err, sandbox.ErrExists) {
		return "", b.taken(to)
	} else if err != nil {
		return "", err
	}
	if err := b.recount(ctx, to); err != nil {
		return "", err
	}
	return "sandbox " + to + " is a clone with a disk of its own; its next use starts it", nil
}

// snapshotTools are the toolset "snapshots".
func (s *server) snapshotTools() []toolSpec {
	own := ownSnapshots{s.boxes}
	const propSnapshot = `"snapshot":{"type":"string"}`
	return []toolSpec{
		{
			name: "snapshot_create", title: "Save a sandbox's disk", hint: "snapshot checkpoint save state", call: adapter(func(ctx context.Context, a *snapshotArgs) (string, error) {
				return own.takeSnapshot(ctx, a.Sandbox, a.Snapshot)
			}),
			description: "Save the disk of a sandbox, running or not, to restore or clone it later. Programs and memory are not saved.",
			properties:  propSandbox + `,"snapshot":{"type":"string","description":"its name; default: the sandbox's with a number"}`,
		},
		{
			name: "snapshot_list", title: "List snapshots", readOnly: true, idempotent: true, hint: "saved disks checkpoints", call: adapter(func(context.Context, *struct{}) (string, error) { return own.listSnapshots() }),
			description: "List the snapshots with the sandboxes that they are of, as JSON.",
		},
		{
			name: "snapshot_restore", title: "Go back to a snapshot", destructive: true, hint: "roll back undo restore state", call: adapter(func(ctx context.Context, a *snapshotArgs) (string, error) {
				return own.restore(ctx, a.Snapshot, a.Sandbox)
			}),
			description: "Stop a sandbox and give it back the disk of a snapshot of it. What was written since is gone.",
			properties:  propSandbox + "," + propSnapshot, required: []string{"snapshot"},
		},
		{
			name: "snapshot_remove", title: "Remove a snapshot", destructive: true, hint: "delete saved disk", call: adapter(func(_ context.Context, a *snapshotArgs) (string, error) { return own.removeSnapshot(a.Snapshot) }),
			description: "Remove a snapshot.", properties: propSnapshot, required: []string{"snapshot"},
		},
		{
			name: "sandbox_clone", title: "Copy a sandbox", hint: "duplicate fork copy of a sandbox or snapshot", call: adapter(func(ctx context.Context, a *snapshotArgs) (string, error) {
				return own.clone(ctx, a.Sandbox, a.Snapshot, a.To)
			}),
			description: "Make a sandbox with a copy of another's disk, or of a snapshot's, and the same settings.",
			properties:  propSandbox + "," + propSnapshot + `,"to":{"type":"string","description":"name of the new sandbox"}`, required: []string{"to"},
		},
	}
}

type snapshotArgs struct {
	Sandbox  string `json:"sandbox"`
	Snapshot string `json:"snapshot"`
	To       string `json:"to"`
}
