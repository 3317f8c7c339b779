package state

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies/grants"
)

// Verb is the hidden first argument that makes msb a supervisor; see MaybeRun.
const Verb = "__supervise"

// SignalCaptureOn and SignalCaptureOff switch the capture of a supervisor, and of `msb run` and `msb gateway`.
const (
	SignalCaptureOn  = syscall.SIGUSR1
	SignalCaptureOff = syscall.SIGUSR2
)

// How long the parts of a sandbox's life may take.
const (
	// BootTimeout bounds the time from the VMM's start to the agent's answer: ten pods that boot at once on two
	// processors without KVM took more than a minute.
	BootTimeout = 2 * time.Minute
	// SyncTimeout bounds the guest's orderly shutdown when it has a disk to write back to.
	SyncTimeout = 5 * time.Second
	// StopTimeout is how long a supervisor may take to end its machine before it is killed, which ends the
	// machine too.
	StopTimeout = 15 * time.Second
	// StopWait is how long a supervisor may take to end its machine, a guest's write-back included.
	StopWait = StopTimeout + SyncTimeout
)

// The descriptors that a supervisor inherits beside its standard ones.
const (
	PlanFD    = 3 // the plan in JSON, to its end
	StatusFD  = 4 // status lines in JSON, from the supervisor
	ControlFD = 5 // the agent's Exec; its end is the sandbox's end
	LockFD    = 6 // the run directory's lock
)

// maxPlan bounds what a supervisor reads of its plan: a policy of a hundred thousand rules is 20 MiB.
const maxPlan = 64 << 20

// Plan is what a supervisor gets from its caller.
type Plan struct {
	Spec
	ID        string       `json:"id"`
	Home      string       `json:"home"`
	Dir       string       `json:"dir"`
	Holds     grants.Holds `json:"holds,omitzero"`
	AgentDisk string       `json:"agent_disk"`
	ImageDisk string       `json:"image_disk"`
	UpperDisk string       `json:"upper_disk,omitempty"`
	Image     image.Config `json:"image"`
	// ForgetCA are certificates, in PEM form, that are removed from the disk of a sandbox without a name.
	ForgetCA string `json:"forget_ca,omitempty"`
	// CacheWork is the disk of caches that are being changed, which the guest may write to.
	CacheWork string `json:"cache_work,omitempty"`
	Learn     string `json:"learn,omitempty"`
	Keep      bool   `json:"keep,omitempty"`
	Attached  bool   `json:"attached,omitempty"` // ends with the caller, though it has a name
	Children  bool   `json:"children,omitempty"` // its programs may ask for children of it
	Review    bool   `json:"review,omitempty"`   // only to look at the disk: no other command gets a session
	Pod       *Pod   `json:"pod,omitempty"`
	Again     *Again `json:"again,omitempty"` // of a run that goes on after the end of its guest
}

// Shares reports whether the guest may write to a directory of this machine, or to a disk that stays.
func (p *Plan) Shares() bool {
	return p.CacheWork != "" || p.Containers || slices.ContainsFunc(p.Volumes, func(v Volume) bool { return !v.ReadOnly }) ||
		slices.ContainsFunc(p.Directories, func(d Directory) bool { return d.Writable })
}

func ReadPlan(f *os.File) (*Plan, error) {
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	p := new(Plan)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	return p, nil
}
