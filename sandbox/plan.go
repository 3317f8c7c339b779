package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies/grants"
)

// The descriptors that a supervisor inherits beside its standard ones.
const (
	planFD    = 3 // the plan in JSON, to its end
	statusFD  = 4 // status lines in JSON, from the supervisor
	controlFD = 5 // the agent's Exec; its end is the sandbox's end
	lockFD    = 6 // the run directory's lock
)

// maxPlan bounds what a supervisor reads of its plan: a policy of a hundred thousand rules is 20 MiB.
const maxPlan = 64 << 20

// plan is what a supervisor is told. It holds no secret: a policy names their sources.
type plan struct {
	ID         string       `json:"id"`
	Name       string       `json:"name,omitempty"` // "" for a sandbox that leaves nothing
	Home       string       `json:"home"`
	Dir        string       `json:"dir"`
	Policy     []byte       `json:"policy"` // TOML, includes merged
	PolicyName string       `json:"policy_name"`
	PolicyFile string       `json:"policy_file,omitempty"`
	Floor      []byte       `json:"floor,omitempty"`  // TOML
	Grants     grants.Set   `json:"grants,omitempty"` // what a later version of the policy may take
	Holds      grants.Holds `json:"holds,omitzero"`
	NoNet      bool         `json:"no_net,omitempty"`
	HTTPProxy  bool         `json:"http_proxy,omitempty"`
	Backend    string       `json:"backend"`
	CPUs       int          `json:"cpus"`
	Memory     int64        `json:"memory"`
	AgentDisk  string       `json:"agent_disk"`
	ImageDisk  string       `json:"image_disk"`
	UpperDisk  string       `json:"upper_disk,omitempty"`
	Image      image.Config `json:"image"`
	Hostname   string       `json:"hostname"`
	Env        []string     `json:"env,omitempty"`
	// Directories have real paths, in the order in which they are mounted.
	Directories   []Directory `json:"directories,omitempty"`
	Hide          []string    `json:"hide,omitempty"`
	DirectoryUser string      `json:"directory_user,omitempty"`
	Audit         string      `json:"audit"`
	Pcap          string      `json:"pcap,omitempty"`
	PcapOptions   PcapOptions `json:"pcap_options,omitzero"`
	Learn         string      `json:"learn,omitempty"`
	Keep          bool        `json:"keep,omitempty"`
	// IdleStop is as in Config, in nanoseconds.
	IdleStop time.Duration `json:"idle_stop,omitempty"`
}

// shares reports whether the guest may write to a directory of this machine.
func (p *plan) shares() bool {
	return slices.ContainsFunc(p.Directories, func(d Directory) bool { return d.Writable })
}

func readPlan(f *os.File) (*plan, error) {
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	p := new(plan)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	return p, nil
}

// statusLines writes status lines, from any goroutine.
type statusLines struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (l *statusLines) write(s status) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(s)
}

// status is one line from the supervisor; exactly one field is set.
type status struct {
	// Notice is a sentence for the user: before the guest boots, and when a changed policy was taken or refused.
	Notice string `json:"notice,omitempty"`
	// Ready says that commands may be run.
	Ready *Info `json:"ready,omitempty"`
	// Denied is what was denied in the sandbox's life, at its end.
	Denied *audit.DenialSummary `json:"denied,omitempty"`
	// Failed says why the sandbox did not start, or why it ended by itself.
	Failed *failed `json:"failed,omitempty"`
}

type failed struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

// Info is what a started sandbox says of itself.
type Info struct {
	ID      string `json:"id"`
	Backend string `json:"backend"`
	// Kernel is the guest's release, in the guest's own words.
	Kernel string `json:"kernel"`
	// Confinement lists what the VMM process is confined by.
	Confinement []string `json:"confinement"`
	// Warnings are sentences about what could not be set up in the guest, and about files of secrets that others may
	// read.
	Warnings []string `json:"warnings,omitempty"`
	// Placeholders gives each secret's placeholder by name.
	Placeholders map[string]string `json:"placeholders,omitempty"`
}
