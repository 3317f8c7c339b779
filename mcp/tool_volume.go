package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// maxVolumes bounds the volumes of one policy file's agents. Each has at most the size of a sandbox's disk.
	maxVolumes = 8
	// defaultVolume is a volume's size in bytes if nothing is said.
	defaultVolume = 1 << 30
	minVolume     = 16 << 20 // below it, ext4's own structures leave little room
	// maxVolumeName leaves room for volumePrefix.
	maxVolumeName = 40
)

// volumePrefix begins the names, on the machine, of the volumes of this policy file's agents. They reach no others.
func (b *boxes) volumePrefix() string { return b.family[:len(labelPrefix)+12] + "." }

// volumeName is the machine's name for an agent's volume.
func (b *boxes) volumeName(name string) (string, error) {
	if err := sandbox.CheckVolumeName(name); err != nil {
		return "", wrong("%w", err)
	}
	if len(name) > maxVolumeName {
		return "", wrong("volume name %q: at most %d characters", printed(name), maxVolumeName)
	}
	return b.volumePrefix() + name, nil
}

// volumes are those of this policy file's agents, under the agents' names.
func (b *boxes) volumes() ([]sandbox.VolumeStatus, error) {
	all, err := b.opts.Home.Volumes().List()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v sandbox.VolumeStatus) bool { return !strings.HasPrefix(v.Name, b.volumePrefix()) })
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, b.volumePrefix())
	}
	return all, nil
}

func (b *boxes) makeVolume(name string, sizeMB int64) (string, error) {
	real, err := b.volumeName(name)
	if err != nil {
		return "", err
	}
	size := sizeMB << 20
	if sizeMB == 0 {
		size = min(defaultVolume, b.opts.Disk)
	}
	if sizeMB < 0 || sizeMB > b.opts.Disk>>20 || size < minVolume {
		return "", wrong("a volume of %d MB: give it %d to %d", sizeMB, minVolume>>20, b.opts.Disk>>20)
	}
	b.mu.Lock() // the lock that their number is checked under
	defer b.mu.Unlock()
	all, err := b.volumes()
	if err != nil {
		return "", err
	}
	if len(all) >= maxVolumes {
		return "", tooManyVolumes(len(all))
	}
	if err := b.opts.Home.Volumes().Create(real, size); errors.Is(err, sandbox.ErrExists) {
		return "", fmt.Errorf("%w: volume %s; use it as it is, or choose another name", sandbox.ErrExists, name)
	} else if err != nil {
		return "", err
	}
	// Another server on this state directory may have made one at the same time.
	if all, err = b.volumes(); err != nil || len(all) > maxVolumes {
		return "", errors.Join(err, tooManyVolumes(len(all)-1), b.opts.Home.Volumes().Remove(real))
	}
	return fmt.Sprintf("volume %s of %d MB is there; a sandbox that is made with it sees it", name, size>>20), nil
}

func tooManyVolumes(there int) error {
	return say("there are %d volumes, and at most %d may be; remove one with volume_remove", there, maxVolumes)
}

// volumeRow is a volume as a client sees it, without paths of the host.
type volumeRow struct {
	Name      string    `json:"name"`
	SizeMB    int64     `json:"size_mb"`
	UsedMB    int64     `json:"used_mb"`
	Created   time.Time `json:"created"`
	InUse     bool      `json:"in_use"`
	Sandboxes []string  `json:"sandboxes,omitempty"`
}

func (b *boxes) listVolumes() (string, error) {
	all, err := b.volumes()
	if err != nil {
		return "", err
	}
	rows := make([]volumeRow, 0, len(all))
	for i := range all {
		v := &all[i]
		rows = append(rows, volumeRow{v.Name, v.Size >> 20, v.Used >> 20, v.Created, v.Busy, v.Sandboxes})
	}
	return asJSON(map[string]any{"volumes": rows, "max_volumes": maxVolumes})
}

func (b *boxes) removeVolume(name string) (string, error) {
	real, err := b.volumeName(name)
	if err != nil {
		return "", err
	}
	err = b.opts.Home.Volumes().Remove(real)
	switch {
	case errors.Is(err, sandbox.ErrNoVolume):
		return "", fmt.Errorf("%w: %s; volume_list shows those that there are", sandbox.ErrNoVolume, name)
	case errors.Is(err, sandbox.ErrVolumeBusy):
		return "", fmt.Errorf("%w: %s; volume_list shows which sandboxes are made with it: remove these first", sandbox.ErrVolumeBusy, name)
	case err != nil:
		return "", err
	}
	return "volume " + name + " removed with all that it held", nil
}

// parseMount reads NAME:/path[:ro].
func (b *boxes) parseMount(text string) (sandbox.Volume, error) {
	parts := strings.Split(text, ":")
	mode := "rw"
	if len(parts) == 3 {
		mode = parts[2]
	}
	if len(parts) < 2 || len(parts) > 3 || mode != "ro" && mode != "rw" {
		return sandbox.Volume{}, wrong("volume %q: write NAME:/path or NAME:/path:ro", printed(text))
	}
	return b.mount(parts[0], parts[1], mode == "ro")
}

// mount is an agent's volume at a path of a sandbox. The volume has to exist: one that the start made would have a size of
// its own.
func (b *boxes) mount(name, guest string, readOnly bool) (v sandbox.Volume, err error) {
	if err := guestPath(guest); err != nil {
		return v, err
	}
	real, err := b.volumeName(name)
	if err != nil {
		return v, err
	}
	if _, err := b.opts.Home.Volumes().Inspect(real); errors.Is(err, sandbox.ErrNoVolume) {
		return v, fmt.Errorf("%w: %s; make it with volume_create", sandbox.ErrNoVolume, name)
	} else if err != nil {
		return v, err
	}
	return sandbox.Volume{Name: real, Guest: path.Clean(guest), ReadOnly: readOnly}, nil
}

// volumeTools are the toolset "volumes".
func (s *server) volumeTools() []toolSpec {
	const propVolume = `"name":{"type":"string","description":"letters, digits, hyphens, dots, underscores"}`
	return []toolSpec{
		{
			name: "volume_create", title: "Make a volume", hint: "persistent disk storage shared between sandboxes", call: adapter(func(_ context.Context, a *volumeArgs) (string, error) { return s.makeVolume(a.Name, a.SizeMB) }),
			description: "Make an empty disk that outlives sandboxes. sandbox_create takes it as volumes: [\"NAME:/path\"]; one sandbox at a time writes to it.",
			properties:  propVolume + `,"size_mb":{"type":"integer","description":"default 1024"}`, required: []string{"name"},
		},
		{
			name: "volume_list", title: "List volumes", readOnly: true, idempotent: true, hint: "persistent disks and who uses them", call: adapter(func(context.Context, *struct{}) (string, error) { return s.listVolumes() }),
			description: "List the volumes with sizes and the sandboxes that are made with them, as JSON.",
		},
		{
			name: "volume_remove", title: "Remove a volume", destructive: true, hint: "delete persistent disk", call: adapter(func(_ context.Context, a *volumeArgs) (string, error) { return s.removeVolume(a.Name) }),
			description: "Remove a volume with all that it holds. No sandbox may be made with it.", properties: propVolume, required: []string{"name"},
		},
	}
}

type volumeArgs struct {
	Name   string `json:"name"`
	SizeMB int64  `json:"size_mb"`
}
