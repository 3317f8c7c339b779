package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// pod is what the containers of one shim share.
type pod struct {
	machine  machine
	settings *settings
	hostname string
	memory   int64 // the machine's, in bytes
	cpus     int
	sysctls  map[string]string
	dir      string // in msb's state directory, which goes with the machine
	alone    bool   // there is one container only, and no pod around it
	kubelet  string // the kubelet's directory of the pod
	hidden   []string
	token    bool // the service account's is for the guest, too
	group    controlGroup
	leave    func() error // takes this process out of the group

	once   sync.Once
	closed error
}

// bootPod boots the machine that a pod's first container asks for.
func bootPod(ctx context.Context, boot bootFunc, id string, spec *specs.Spec, s *settings) (*pod, error) {
	cfg, err := machineConfig(id, spec, s)
	if err != nil {
		return nil, err
	}
	token, err := onOff(annotationToken, spec.Annotations[annotationToken])
	if err != nil {
		return nil, err
	}
	group, err := groupOf(spec)
	if err != nil {
		return nil, err
	}
	leave, err := group.enter()
	if err != nil {
		return nil, fmt.Errorf("msb: the pod's control group %s: %w", group, err)
	}
	m, name, err := boot(ctx, cfg, network(spec))
	if err != nil {
		return nil, errors.Join(err, leave())
	}
	p := &pod{
		machine: m, settings: s, hostname: spec.Hostname, alone: spec.Annotations[annotationSandbox] == "",
		memory: cfg.Memory, cpus: cfg.CPUs,
		group: group, leave: leave, token: token,
		dir: filepath.Join(s.Home, "run", name),
	}
	p.kubelet = podDir(s, spec.Annotations)
	p.hidden = hiddenVolumes(cfg.Policy, p.kubelet)
	if !p.alone && spec.Linux != nil {
		p.sysctls = spec.Linux.Sysctl
	}
	return p, nil
}

// withSysctls adds the pod's to a container's own. The network's are all containers' alike, and the others are set in each:
// the pod has no namespace beside theirs.
func (p *pod) withSysctls(own map[string]string) map[string]string {
	all := maps.Clone(p.sysctls)
	if all == nil {
		return own
	}
	maps.Copy(all, own)
	return all
}

// close ends the machine, with all that runs in it, and waits until it has gone.
func (p *pod) close() error {
	if p == nil {
		return nil
	}
	p.once.Do(func() { p.closed = errors.Join(p.machine.Close(), p.leave()) })
	return p.closed
}

// over tells whether the machine has ended.
func (p *pod) over() bool {
	select {
	case <-p.machine.Done():
		return true
	default:
		return false
	}
}
