package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/log"
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
	obeyWait time.Duration
	stats    podStats
	score    *int // the OOM score of the machine's processes, once a container has one

	once   sync.Once
	closed error
}

// obeyWait is how long the guest may take to end a process by SIGKILL, and to remove a container. containerd ends a pod by its
// containers, one after the other, and waits for each of them: a guest that keeps one would keep its pod for ever.
const obeyWait = time.Minute

// endUnless ends the machine if done isn't closed in time.
func (p *pod) endUnless(done <-chan struct{}) {
	after(p.obeyWait, done, func() {
		if err := p.close(); err != nil {
			log.L.WithError(err).Error("the machine of a guest that didn't obey did not end well")
		}
	})
}

// after calls do if done isn't closed in time.
func after(wait time.Duration, done <-chan struct{}, do func()) {
	go func() {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			do()
		}
	}()
}

// oomScore makes the node's kernel choose the machine's processes, when it lacks memory, as it would a container's: they have
// inherited the shim's score, with which it chooses nearly everything else first. Of several containers that are not alike the one that is
// chosen first counts, since the machine is one process. The shim keeps its own.
func (p *pod) oomScore(adjust *int) error {
	if adjust == nil || p.score != nil && *p.score >= *adjust {
		return nil
	}
	pids, err := p.group.pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(*adjust)), 0)
		gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
		if err != nil && !gone && !errors.Is(err, fs.ErrPermission) { // a shim that may not lower it: they are chosen earlier then
			return err
		}
	}
	p.score = adjust
	return nil
}

// bootPod boots the machine that a pod's first container asks for.
func bootPod(ctx context.Context, boot bootFunc, id string, spec *specs.Spec, s *settings, group controlGroup) (*pod, error) {
	cfg, err := machineConfig(id, spec, s)
	if err != nil {
		return nil, err
	}
	token, err := onOff(annotationToken, spec.Annotations[annotationToken])
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
