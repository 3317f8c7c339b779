package runner

import (
	"errors"
	"os"

	"github.com/msb-project/msb/internal/vm"
)

// NewLaunch makes what every backend needs out of a validated Spec: the
// channels, as FirstFileFD (agent), FirstFileFD+1 (console) and FirstFileFD+2
// (directories), and the grants for the disks. The disks' paths in the Spec become real paths.
func NewLaunch(spec *vm.Spec) (*Launch, error) {
	l := &Launch{
		consoleLog: spec.ConsoleLog,
	}
	if !spec.CallersGroup {
		l.limits = limits{memory: int64(spec.MemoryMiB)<<20 + vmmMemory, threads: spec.CPUs + vmmThreads}
	}
	spec.Disks = append([]vm.Disk(nil), spec.Disks...)
	for i := range spec.Disks {
		d := &spec.Disks[i]
		real, err := clean(d.Path)
		if err != nil {
			return nil, err
		}
		d.Path = real
		info, err := os.Stat(real)
		if err != nil {
			return nil, err
		}
		l.Plan.MaxFile = max(l.Plan.MaxFile, info.Size())
		if d.ReadOnly {
			l.Plan.ReadOnly = append(l.Plan.ReadOnly, real)
		} else {
			l.Plan.ReadWrite = append(l.Plan.ReadWrite, real)
		}
	}
	l.Plan.Devices = []string{"/dev/null", "/dev/urandom"}
	agent, agentFD, err := StreamPair("agent")
	if err != nil {
		return nil, err
	}
	console, consoleFD, err := StreamPair("console")
	if err != nil {
		return nil, errors.Join(err, agent.Close(), agentFD.Close())
	}
	dirs, dirsFD, err := StreamPair("directories")
	if err != nil {
		return nil, errors.Join(err, agent.Close(), agentFD.Close(), console.Close(), consoleFD.Close())
	}
	widen(agent)
	widen(dirs)
	l.agent, l.Console, l.dirs, l.Files = agent, console, dirs, []*os.File{agentFD, consoleFD, dirsFD}
	return l, nil
}
