package shim

import (
	"fmt"
	"math"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// sharesOfCPU are one processor's shares in control groups of version 1.
const sharesOfCPU = 1024

// machineSize sets a machine's memory and processors: those of the pod, which containerd's CRI writes on its sandbox, else
// those of a container that is alone. What has no limit gets the node's default.
func machineSize(cfg *sandbox.Config, s *settings, spec *specs.Spec) error {
	size := podSize{}
	if err := size.annotated(spec.Annotations); err != nil {
		return err
	}
	if spec.Annotations[annotationSandbox] == "" && spec.Linux != nil {
		size.limited(spec.Linux.Resources)
	}
	cfg.Memory, cfg.CPUs, cfg.Disk = s.MemoryBytes, s.CPUs, s.DiskBytes
	if size.memory > 0 {
		cfg.Memory = min(size.memory, math.MaxInt64-s.OverheadBytes) + s.OverheadBytes // more than there may be is an error of the start
	}
	if n := size.cpus(); n > 0 {
		cfg.CPUs = n
	}
	return nil
}

// podSize is what a pod asks for; 0 is no limit.
type podSize struct{ memory, quota, period, shares int64 }

func (p *podSize) annotated(annotations map[string]string) error {
	for key, to := range map[string]*int64{
		annotationMemory: &p.memory, annotationCPUQuota: &p.quota, annotationCPUPeriod: &p.period, annotationCPUShares: &p.shares,
	} {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return refused(fmt.Sprintf("the annotation %s is %q, which is no number", key, text))
		}
		*to = max(0, n)
	}
	return nil
}

func (p *podSize) limited(r *specs.LinuxResources) {
	if r == nil {
		return
	}
	if m := r.Memory; m != nil {
		p.memory = max(0, value(m.Limit))
	}
	if c := r.CPU; c != nil {
		p.quota, p.period, p.shares = max(0, value(c.Quota)), int64(value(c.Period)), int64(value(c.Shares))
	}
}

// cpus are whole processors: those of the quota, else those that the shares stand for; 0 without either.
func (p *podSize) cpus() int {
	switch {
	case p.quota > 0 && p.period > 0:
		return int(roundUp(p.quota, p.period))
	case p.shares > sharesOfCPU:
		return int(roundUp(p.shares, sharesOfCPU))
	}
	return 0
}

// roundUp divides positive numbers, of which the sum may be too large.
func roundUp(n, by int64) int64 { return (n-1)/by + 1 }

func sizeOf(width, height uint32) agentclient.Size {
	return agentclient.Size{Rows: uint16(height), Cols: uint16(width)}
}
