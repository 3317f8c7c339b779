package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies/grants"
)

// StoredVersion is that of sandbox.json.
const StoredVersion = 1

// Stored is what a named sandbox is, as it is kept. It holds no secret: a policy names their sources.
type Stored struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Label   string `json:"label,omitempty"`
	// Labels are the user's, Label a program's.
	Labels     map[string]string `json:"labels,omitempty"`
	Created    time.Time         `json:"created"`
	Policy     string            `json:"policy"` // TOML, includes merged
	PolicyName string            `json:"policy_name"`
	PolicyPath string            `json:"policy_path,omitempty"` // of the file that Policy was read from
	PolicyFile string            `json:"policy_file,omitempty"`
	Floor      string            `json:"floor,omitempty"` // TOML
	FloorPath  string            `json:"floor_path,omitempty"`
	// Grants are what the policy may take from this machine, as it was approved.
	Grants      grants.Set   `json:"grants,omitempty"`
	NoNet       bool         `json:"no_net,omitempty"`
	HTTPProxy   bool         `json:"http_proxy,omitempty"`
	Backend     string       `json:"backend"`
	CPUs        int          `json:"cpus"`
	Memory      int64        `json:"memory"`
	Disk        int64        `json:"disk"`
	Image       string       `json:"image"`
	PolicyImage bool         `json:"policy_image,omitempty"`
	ImageDigest string       `json:"image_digest"`
	ImageConfig image.Config `json:"image_config"`
	Hostname    string       `json:"hostname"`
	Env         []string     `json:"env,omitempty"`
	Audit       string       `json:"audit,omitempty"`
	Pcap        string       `json:"pcap,omitempty"`
	PcapOptions PcapOptions  `json:"pcap_options,omitzero"`
	Directories []Directory  `json:"directories,omitempty"`
	Hide        []string     `json:"hide,omitempty"`
	// HideCredentials is looked for at each start.
	HideCredentials     bool `json:"hide_credentials,omitempty"`
	OperatorDirectories bool `json:"operator_directories,omitempty"`
	// DirectoryUser owns what is in Directories.
	DirectoryUser string `json:"directory_user,omitempty"`
	// IdleStop is in nanoseconds.
	IdleStop time.Duration `json:"idle_stop,omitempty"`
	// Placeholders are by the secret's name: files of the guest may hold them.
	Placeholders map[string]string `json:"placeholders,omitempty"`
}

// ReadStored reads the state of the sandbox of that name from its directory.
func ReadStored(dir, name string) (*Stored, error) {
	path := filepath.Join(dir, StoredFile)
	b, err := ReadOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; `msb ls` lists those there are", ErrNoSandbox, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	st := new(Stored)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(st); err != nil {
		return nil, fmt.Errorf("%w: %s, byte %d: %w; `msb rm %s` removes it", ErrState, path, dec.InputOffset(), err, name)
	}
	if st.Version != StoredVersion || st.Name != name {
		return nil, fmt.Errorf("%w: %s: it is of version %d and for %.80q, want version %d and %s; `msb rm %s` removes it",
			ErrState, path, st.Version, st.Name, StoredVersion, name, name)
	}
	return st, nil
}
