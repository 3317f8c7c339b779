package supervisor

import (
	"errors"
	"os"
	"strconv"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// attachVolumes adds the volumes' disks to a machine. It holds their locks itself, also when this process is killed: they
// are free when nothing can write to the disks any more.
func attachVolumes(plan *state.Plan, spec *vm.Spec) error {
	for i, v := range plan.Volumes {
		path, lock, err := state.AttachVolume(plan.Home, v)
		if err != nil {
			return errors.Join(err, closeFiles(spec.Held))
		}
		spec.Held = append(spec.Held, lock)
		spec.Disks = append(spec.Disks, vm.Disk{Path: path, ReadOnly: v.ReadOnly, ID: volumeSerial(i)})
	}
	return nil
}

func volumeSerial(i int) string { return "volume" + strconv.Itoa(i) }

func volumesOf(plan *state.Plan) []agentclient.Volume {
	next := 'c' // behind the agent's and the image's
	if plan.UpperDisk != "" {
		next++
	}
	volumes := make([]agentclient.Volume, 0, len(plan.Volumes))
	for i, v := range plan.Volumes {
		volumes = append(volumes, agentclient.Volume{Disk: agentclient.Disk{Serial: volumeSerial(i), Device: "vd" + string(next)}, Path: v.Guest, ReadOnly: v.ReadOnly})
		next++
	}
	return volumes
}

func closeFiles(files []*os.File) error {
	errs := make([]error, 0, len(files))
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
