package shim

import (
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/sandbox"
)

// resourcesOf converts limits, of a container or of an update.
func resourcesOf(l *specs.LinuxResources, r *refusals) sandbox.ContainerResources {
	if l == nil {
		return sandbox.ContainerResources{}
	}
	out := sandbox.ContainerResources{Unified: l.Unified}
	r.devices(l.Devices)
	if m := l.Memory; m != nil {
		out.MemoryBytes = max(0, value(m.Limit))
		r.memory(m)
	}
	if c := l.CPU; c != nil {
		out.CPUWeight = cpuWeight(value(c.Shares))
		if quota := value(c.Quota); quota > 0 {
			out.CPUQuota, out.CPUPeriod = micro(quota), micro(value(c.Period))
		}
		r.cpu(c)
	}
	if p := l.Pids; p != nil {
		out.PIDs = max(0, value(p.Limit))
	}
	r.add(hasBlockIO(l.BlockIO), "blockIO limits", leaveOut)
	r.add(l.Network != nil && (value(l.Network.ClassID) != 0 || len(l.Network.Priorities) > 0), "network classes and priorities of control groups", leaveOut)
	r.add(len(l.Rdma) > 0, "rdma limits", leaveOut)
	huge := func(h specs.LinuxHugepageLimit) bool { return h.Limit != 0 }
	r.add(slices.ContainsFunc(l.HugepageLimits, huge), "hugepage limits", "the guest has no huge pages: leave them out")
	return out
}

// memory looks at what of memory limits the guest doesn't have. It has no swap: any limit of that holds.
func (r *refusals) memory(m *specs.LinuxMemory) {
	r.add(value(m.Reservation) > 0, "a memory reservation", leaveOut)
	r.add(value(m.Kernel) > 0 || value(m.KernelTCP) > 0, "limits of the kernel's memory", leaveOut) //nolint:staticcheck // deprecated, and set all the same
	r.add(value(m.Swappiness) > 0, "swappiness", "the guest has no swap: leave it out")
	r.add(m.DisableOOMKiller != nil && *m.DisableOOMKiller, "disableOOMKiller", leaveOut)
}

func (r *refusals) cpu(c *specs.LinuxCPU) {
	r.add(value(c.Burst) > 0, "cpu burst", leaveOut)
	r.add(value(c.RealtimeRuntime) > 0 || value(c.RealtimePeriod) > 0, "realtime scheduling", leaveOut)
	r.add(c.Cpus != "" || c.Mems != "", "pinning to processors or memory of the node (cpuset)", "leave it out, and the kubelet's static CPU manager off")
	r.add(value(c.Idle) != 0, "cpu idle", leaveOut)
}

// devices looks at the rules of the devices' control group. Rules may allow the guest's usual devices, and making
// nodes of any: there are no others.
func (r *refusals) devices(rules []specs.LinuxDeviceCgroup) {
	for _, d := range rules {
		if !d.Allow || d.Access == "m" {
			continue
		}
		if d.Major == nil || *d.Major < 0 {
			r.add(true, "privileged (every device of the node)", "a microVM has none: leave it out, or add the capabilities that are needed")
			return
		}
		usual := d.Type == "c" && slices.Contains([]int64{1, 5, 136}, *d.Major)
		r.add(!usual, "access to a device of the node", "a microVM has none: leave it out")
	}
}

func hasBlockIO(b *specs.LinuxBlockIO) bool {
	return b != nil && (value(b.Weight) != 0 || value(b.LeafWeight) != 0 || len(b.WeightDevice)+len(b.ThrottleReadBpsDevice)+
		len(b.ThrottleWriteBpsDevice)+len(b.ThrottleReadIOPSDevice)+len(b.ThrottleWriteIOPSDevice) > 0)
}

// cpuWeight converts shares of control groups of version 1 to a weight of version 2, as runc and the kubelet do
// (github.com/opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value up to v0.0.1).
func cpuWeight(shares uint64) uint64 {
	if shares == 0 {
		return 0
	}
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

func micro[T int64 | uint64](n T) time.Duration { return time.Duration(n) * time.Microsecond }

// value is what an optional field holds, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
