//go:build linux

package agentd

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// parseContainer checks all of a request but its id. An error names the field that can't be honoured.
func parseContainer(r *agentpb.CreateContainerRequest) (*workload.ContainerSetup, *workload.ContainerProcess, error) {
	for field, n := range map[string]int{
		"maskedPaths": len(r.GetMaskedPaths()), "readonlyPaths": len(r.GetReadOnlyPaths()), "sysctls": len(r.GetSysctls()),
		"resources": len(r.GetLimits().GetUnified()),
	} {
		if n > agentpb.MaxContainerPaths {
			return nil, nil, fmt.Errorf("%s: %d of them, at most %d may be", field, n, agentpb.MaxContainerPaths)
		}
	}
	if n := len(r.GetMounts()); n > agentpb.MaxContainerMounts {
		return nil, nil, fmt.Errorf("mounts: %d of them, at most %d may be", n, agentpb.MaxContainerMounts)
	}
	if r.GetRoot() == nil || r.GetRoot().GetFile() {
		return nil, nil, errors.New("root: it must be a directory")
	}
	process, err := parseProcess(r.GetProcess())
	if err != nil {
		return nil, nil, err
	}
	setup := &workload.ContainerSetup{
		ReadOnlyRoot: r.GetReadOnlyRoot(), Hostname: r.GetHostname(), Sysctls: r.GetSysctls(),
		MaskedPaths: r.GetMaskedPaths(), ReadOnlyPaths: r.GetReadOnlyPaths(),
	}
	for i, m := range r.GetMounts() {
		if (m.GetType() == "bind") != (m.GetSource() != nil) {
			return nil, nil, fmt.Errorf("mounts[%d]: a source belongs to the type bind, and to no other", i)
		}
		if m.GetType() != "tmpfs" && (m.GetSizeBytes() != 0 || m.GetMode() != 0) || m.GetSizeBytes() < 0 {
			return nil, nil, fmt.Errorf("mounts[%d]: size and mode belong to the type tmpfs", i)
		}
		if err := checkShared(m); err != nil {
			return nil, nil, fmt.Errorf("mounts[%d]: %w", i, err)
		}
		attributes := unix.MOUNT_ATTR_NODEV // a device would lead to the machine's disks and ports
		for attribute, wanted := range map[int]bool{
			unix.MOUNT_ATTR_RDONLY: m.GetReadOnly(), unix.MOUNT_ATTR_NOSUID: m.GetNoSuid(), unix.MOUNT_ATTR_NOEXEC: m.GetNoExec(),
		} {
			if wanted {
				attributes |= attribute
			}
		}
		setup.Mounts = append(setup.Mounts, workload.ContainerMount{
			Type: m.GetType(), Target: m.GetTarget(), Attributes: attributes, File: m.GetSource().GetFile(), Size: m.GetSizeBytes(), Mode: m.GetMode(),
		})
	}
	return setup, process, setup.Check()
}

func parseProcess(m *agentpb.ContainerProcess) (*workload.ContainerProcess, error) {
	if m == nil {
		return nil, errors.New("process: there is none")
	}
	p := &workload.ContainerProcess{
		Args: m.GetArgs(), Env: m.GetEnv(), Cwd: m.GetCwd(), UID: m.GetUid(), GID: m.GetGid(), Groups: m.GetAdditionalGids(),
		NoNewPrivileges: m.GetNoNewPrivileges(), TTY: m.GetTerminal(), Umask: m.Umask, OOMScoreAdj: m.OomScoreAdj,
		Size: windowSize(&agentpb.WindowSize{Rows: m.GetRows(), Cols: m.GetColumns()}),
	}
	for _, l := range m.GetRlimits() {
		p.Rlimits = append(p.Rlimits, workload.Rlimit{Name: l.GetName(), Soft: l.GetSoft(), Hard: l.GetHard()})
	}
	c := m.GetCapabilities()
	for _, s := range []struct {
		set   *uint64
		names []string
	}{
		{&p.Capabilities.Bounding, c.GetBounding()}, {&p.Capabilities.Effective, c.GetEffective()}, {&p.Capabilities.Inheritable, c.GetInheritable()},
		{&p.Capabilities.Permitted, c.GetPermitted()}, {&p.Capabilities.Ambient, c.GetAmbient()},
	} {
		var err error
		if *s.set, err = workload.CapabilitySet(s.names); err != nil {
			return nil, fmt.Errorf("capabilities: %w", err)
		}
	}
	return p, p.Check()
}

// limitContainer bounds what a container makes of its control group itself, and sets its limits.
func limitContainer(g *workload.Cgroup, l *agentpb.ContainerLimits) error {
	if err := errors.Join(g.Set("cgroup.max.depth", "16"), g.Set("cgroup.max.descendants", "1024")); err != nil {
		return err
	}
	return setLimits(g, l)
}

func setLimits(g *workload.Cgroup, l *agentpb.ContainerLimits) error {
	const defaultPeriod = 100_000 // of the kernel, in microseconds
	type limit struct{ file, value string }
	var all []limit
	for name, value := range l.GetUnified() {
		if err := workload.CheckLimit(name); err != nil {
			return err
		}
		all = append(all, limit{name, value})
	}
	if n := l.GetMemoryBytes(); n > 0 {
		all = append(all, limit{"memory.max", strconv.FormatInt(n, 10)})
	} else if n < 0 {
		all = append(all, limit{"memory.max", "max"})
	}
	if n := l.GetCpuWeight(); n != 0 {
		all = append(all, limit{"cpu.weight", strconv.FormatUint(n, 10)})
	}
	if l.GetCpuQuotaUs() != 0 || l.GetCpuPeriodUs() != 0 {
		quota, period := "max", l.GetCpuPeriodUs()
		if q := l.GetCpuQuotaUs(); q > 0 {
			quota = strconv.FormatInt(q, 10)
		}
		if period == 0 {
			period = defaultPeriod
		}
		all = append(all, limit{"cpu.max", quota + " " + strconv.FormatInt(period, 10)})
	}
	if n := l.GetPids(); n > 0 {
		all = append(all, limit{"pids.max", strconv.FormatInt(n, 10)})
	}
	for _, l := range all {
		if err := g.Set(l.file, l.value); err != nil {
			return err
		}
	}
	return nil
}
