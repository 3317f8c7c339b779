package state

import (
	"errors"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// Spec is what a sandbox is, for its supervisor (Plan) and for its next start (Stored). It holds no secret: a policy names
// their sources.
type Spec struct {
	Name       string `json:"name,omitempty"` // "" for a sandbox that leaves nothing
	Policy     string `json:"policy"`         // TOML, includes merged
	PolicyName string `json:"policy_name"`
	PolicyFile string `json:"policy_file,omitempty"`
	Floor      string `json:"floor,omitempty"` // TOML
	// Between are the policies of the sandboxes whose child this is and that are narrower than the floor, in TOML; the
	// highest is first.
	Between []string `json:"between,omitempty"`
	// Grants are what the policy, and a later version of it, may take from this machine.
	Grants      grants.Set        `json:"grants,omitempty"`
	NoNet       bool              `json:"no_net,omitempty"`
	Containers  bool              `json:"containers,omitempty"`
	HTTPProxy   bool              `json:"http_proxy,omitempty"`
	Backend     string            `json:"backend"`
	Cold        bool              `json:"cold,omitempty"`
	CPUs        int               `json:"cpus"`
	Memory      int64             `json:"memory"`
	Hostname    string            `json:"hostname"`
	Env         []string          `json:"env,omitempty"`
	Audit       string            `json:"audit,omitempty"`
	AuditLabels map[string]string `json:"audit_labels,omitempty"`
	Pcap        string            `json:"pcap,omitempty"`
	PcapOptions PcapOptions       `json:"pcap_options,omitzero"`
	Ports       []Port            `json:"ports,omitempty"`
	// Directories have real paths in a plan, in the order in which they are mounted.
	Directories []Directory `json:"directories,omitempty"`
	Hide        []string    `json:"hide,omitempty"`
	// DirectoryUser owns what is in Directories.
	DirectoryUser string `json:"directory_user,omitempty"`
	// Volumes are in the order in which they are mounted.
	Volumes []Volume `json:"volumes,omitempty"`
	// Caches are tools' names.
	Caches []string `json:"caches,omitempty"`
	// Tmpfs are in the order in which they are mounted.
	Tmpfs    []Tmpfs `json:"tmpfs,omitempty"`
	ReadOnly bool    `json:"read_only,omitempty"`
	// AutoRemove removes the sandbox when its run ends; the end of its main job ends the run.
	AutoRemove bool    `json:"auto_remove,omitempty"`
	Restart    Restart `json:"restart,omitzero"`
	// IdleStop and Lifetime are in nanoseconds.
	IdleStop time.Duration `json:"idle_stop,omitempty"`
	Lifetime time.Duration `json:"lifetime,omitempty"`
}

// ReadFloor is the floor with the policies between it and the sandbox's own under it, nil for none.
func (s *Spec) ReadFloor() (*policies.Policy, error) {
	if s.Floor == "" {
		return nil, nil
	}
	floor, err := policies.Parse("floor", []byte(s.Floor), nil)
	for _, text := range s.Between {
		if err != nil {
			break
		}
		var p *policies.Policy
		if p, err = policies.Parse("policy of a parent", []byte(text), nil); err == nil {
			floor, err = policies.Tighten(floor, p)
		}
	}
	return floor, err
}

// Directory is a directory of this machine that a guest sees.
type Directory = policies.Directory

// Tmpfs is a file system in a guest's memory, which is new at each start.
type Tmpfs struct {
	// Path is absolute and clean.
	Path string `json:"path"`
	// Size in bytes; 0 is half of the guest's memory.
	Size int64 `json:"size,omitempty"`
	// Mode is nil for that of the directory that it covers, 01777 where there is none.
	Mode *uint32 `json:"mode,omitempty"`
	// Exec lets programs in it run.
	Exec bool `json:"exec,omitempty"`
}

// ErrTmpfs is wrapped by errors about a tmpfs that can't be mounted.
var ErrTmpfs = errors.New("tmpfs can't be mounted")

// ErrDirectory is wrapped by errors about a directory that can't be shared.
var ErrDirectory = errors.New("directory can't be shared")

// PcapOptions say how a capture is written; the zero value is from the start, with the capture package's
// bounds.
type PcapOptions struct {
	// Off leaves the file empty until SwitchCapture.
	Off bool `json:"off,omitempty"`
	// A file of MaxBytes, or one that is MaxAge old, is rotated away; Keep of them stay.
	MaxBytes int64         `json:"max_bytes,omitempty"`
	MaxAge   time.Duration `json:"max_age,omitempty"`
	Keep     int           `json:"keep,omitempty"`
}
