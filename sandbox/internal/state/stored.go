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
	"github.com/msb-project/msb/policies"
)

// StoredVersion is that of sandbox.json.
const StoredVersion = 1

// Stored is what a named sandbox is, as it is kept.
type Stored struct {
	Version int `json:"version"`
	Spec
	Label string `json:"label,omitempty"`
	// Labels are the user's, Label a program's.
	Labels  map[string]string `json:"labels,omitempty"`
	Created time.Time         `json:"created"`
	// Ran is how much of its Lifetime the sandbox has had, in nanoseconds.
	Ran         time.Duration `json:"ran,omitempty"`
	PolicyPath  string        `json:"policy_path,omitempty"` // of the file that Policy was read from
	FloorPath   string        `json:"floor_path,omitempty"`
	Disk        int64         `json:"disk"`
	Image       string        `json:"image"`
	PolicyImage bool          `json:"policy_image,omitempty"`
	ImageDigest string        `json:"image_digest"`
	ImageConfig image.Config  `json:"image_config"`
	// HideCredentials has credentials searched for again at each start.
	HideCredentials     bool `json:"hide_credentials,omitempty"`
	OperatorDirectories bool `json:"operator_directories,omitempty"`
	OperatorVolumes     bool `json:"operator_volumes,omitempty"`
	// Credentials are those that a start found; the next ones hide them as well.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Placeholders are by the secret's name: files of the guest may hold them.
	Placeholders map[string]string `json:"placeholders,omitempty"`
	// ParentPlaceholders are those of the sandboxes whose disk this one's was: the secret's name by the placeholder.
	ParentPlaceholders map[string]string `json:"parent_placeholders,omitempty"`
	// Requests are those for more of the network than the policy allows, with their answers; the oldest is first.
	Requests []Request `json:"requests,omitempty"`
	// NewIdentity means that the disk is a copy of another sandbox's, and that the next start renews on it what tells
	// machines apart. ForgetCA are the certificates, in PEM form, of the sandboxes whose disk it was.
	NewIdentity bool   `json:"new_identity,omitempty"`
	ForgetCA    string `json:"forget_ca,omitempty"`
	// Parent is the sandbox whose child this is, ParentCreated tells it from a later one of that name.
	Parent        string    `json:"parent,omitempty"`
	ParentCreated time.Time `json:"parent_created,omitzero"`
	// Root and RootCreated are of the sandbox above all, whose budget counts a child even when its parent has ended.
	Root        string    `json:"root,omitempty"`
	RootCreated time.Time `json:"root_created,omitzero"`
	// Children is the budget of a sandbox that may have children, and of theirs.
	Children *policies.ChildBudget `json:"children,omitempty"`
	// Renamed is the name that the directory is about to get. It is written before the directory has it, so that the
	// state is good under both names if a kill comes between.
	Renamed string `json:"renamed,omitempty"`
}

// Credentials are what looks like credentials in the directories that a guest sees.
type Credentials struct {
	// Paths are from a directory's top.
	Paths []string `json:"paths,omitempty"`
	// ByName means that there were too many, and that every file is hidden whose name could be that of credentials.
	ByName bool `json:"by_name,omitempty"`
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
	if st.Name != name && st.Renamed == name {
		st.rename(name)
	}
	st.Renamed = ""
	if st.Version != StoredVersion || st.Name != name {
		return nil, fmt.Errorf("%w: %s: it is of version %d and for %.80q, want version %d and %s; `msb rm %s` removes it",
			ErrState, path, st.Version, st.Name, StoredVersion, name, name)
	}
	return st, nil
}

// rename gives it another name, and the guest the host name that goes with it unless it has one of its own.
func (st *Stored) rename(name string) {
	if st.Hostname == st.Name {
		st.Hostname = name
	}
	st.Name = name
}
