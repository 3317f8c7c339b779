package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// The files of a named sandbox. Those of a run are there while it runs, and are swept after a kill.
const (
	namedDir = "sandboxes"

	storedFile  = "sandbox.json"
	caFile      = "ca.pem"
	endFile     = "end.json"     // how its last run ended
	infoFile    = "run.json"     // what the run says of itself
	controlSock = "control.sock" // of the run
)

// storedVersion is that of sandbox.json.
const storedVersion = 1

// stored is what a named sandbox is, as it is kept. It holds no secret: a policy names their sources.
type stored struct {
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

// newStored is what cfg, which is filled, and its image become.
func newStored(name string, cfg *Config, img *image.Image, admitted *Admission) *stored {
	st := &stored{
		Version: storedVersion, Name: name, Label: cfg.Label, Labels: cfg.Labels, Created: time.Now().UTC().Truncate(time.Second),
		Policy: string(policies.Encode(cfg.Policy)), PolicyName: cfg.Policy.File, PolicyPath: cfg.Policy.Path, PolicyFile: cfg.PolicyFile,
		Grants: admitted.Grants, PolicyImage: cfg.PolicyImage,
		NoNet: cfg.NoNet, HTTPProxy: cfg.HTTPProxy, Backend: cfg.Backend, CPUs: cfg.CPUs, Memory: cfg.Memory, Disk: cfg.Disk,
		Image: cfg.Image, ImageDigest: img.Digest, ImageConfig: img.Config, Hostname: cfg.Hostname, Env: cfg.Env,
		Audit: cfg.Audit, Pcap: cfg.Pcap, PcapOptions: cfg.PcapOptions,
		Directories: cfg.Directories, Hide: cfg.Hide, HideCredentials: cfg.HideCredentials, DirectoryUser: cfg.DirectoryUser, IdleStop: cfg.IdleStop,
		OperatorDirectories: cfg.OperatorDirectories,
	}
	if cfg.Floor != nil {
		st.Floor, st.FloorPath = string(policies.Encode(cfg.Floor)), cfg.Floor.Path
	}
	if st.Hostname == "" {
		st.Hostname = name
	}
	return st
}

// config is what a run of it starts from. A policy file is read anew: it is what counts, as for `msb run`.
func (st *stored) config() (cfg Config, err error) {
	cfg = Config{
		PolicyFile: st.PolicyFile, NoNet: st.NoNet, HTTPProxy: st.HTTPProxy, Backend: st.Backend, CPUs: st.CPUs, Memory: st.Memory,
		Disk: st.Disk, Image: st.Image, PolicyImage: st.PolicyImage, Pull: image.PullMissing, Hostname: st.Hostname, Env: st.Env,
		Audit: st.Audit, Pcap: st.Pcap, PcapOptions: st.PcapOptions,
		Directories: st.Directories, Hide: st.Hide, HideCredentials: st.HideCredentials, DirectoryUser: st.DirectoryUser, IdleStop: st.IdleStop,
		OperatorDirectories: st.OperatorDirectories,
	}
	if st.PolicyFile == "" {
		if cfg.Policy, err = policies.Parse(st.PolicyName, []byte(st.Policy), nil); err == nil {
			cfg.Policy.Path = st.PolicyPath
		}
	} else {
		cfg.Policy, err = loadPolicy(st.PolicyFile, fmt.Sprintf("sandbox %s starts with this file: put it back, or `msb rm %s` and make the sandbox anew", st.Name, st.Name))
	}
	if err == nil && st.Floor != "" {
		if cfg.Floor, err = policies.Parse("floor", []byte(st.Floor), nil); err == nil {
			cfg.Floor.Path = st.FloorPath
		}
	}
	return cfg, err
}

// Policy is what the sandbox of that name starts with: its policy file as it is now, under its floor.
func (h *Home) Policy(name string) (*policies.Policy, error) {
	st, err := h.load(name)
	if err != nil {
		return nil, Fail(err)
	}
	cfg, err := st.config()
	if err != nil || cfg.Floor == nil {
		return cfg.Policy, Fail(err)
	}
	p, err := policies.Tighten(cfg.Floor, cfg.Policy)
	return p, Fail(err)
}

// LoadPolicy reads a policy file and tells one that can't be read (ErrPolicyMissing) from one that is wrong.
func LoadPolicy(path string) (*policies.Policy, error) {
	if slices.Contains(policies.Presets(), path) {
		return loadPolicy(path, fmt.Sprintf("%s is a preset: write a file with version = 1 and include = [%q]", path, path))
	}
	return loadPolicy(path, "write one, or start from a preset: `msb policy presets`")
}

func loadPolicy(path, remedy string) (*policies.Policy, error) {
	p, err := policies.Load(path)
	var wrong policies.ErrorList
	if err != nil && !errors.As(err, &wrong) {
		return nil, Fail(fmt.Errorf("%w: %w; %s", ErrPolicyMissing, err, remedy))
	}
	return p, Fail(err)
}

func (h *Home) namedPath(name string, file ...string) string {
	return filepath.Join(append([]string{h.dir, namedDir, name}, file...)...)
}

// realDir refuses a link in the place of a sandbox's directory: nothing that msb writes or removes goes through one.
func (h *Home) realDir(name string) error {
	info, err := os.Lstat(h.namedPath(name))
	if err != nil {
		return missing(name, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory, and a link is not followed; move it away", ErrState, h.namedPath(name))
	}
	return nil
}

// load reads a named sandbox's state.
func (h *Home) load(name string) (*stored, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := h.realDir(name); err != nil {
		return nil, err
	}
	path := h.namedPath(name, storedFile)
	b, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; `msb ls` lists those there are", ErrNoSandbox, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	st := new(stored)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(st); err != nil {
		return nil, fmt.Errorf("%w: %s, byte %d: %w; `msb rm %s` removes it", ErrState, path, dec.InputOffset(), err, name)
	}
	if st.Version != storedVersion || st.Name != name {
		return nil, fmt.Errorf("%w: %s: it is of version %d and for %.80q, want version %d and %s; `msb rm %s` removes it",
			ErrState, path, st.Version, st.Name, storedVersion, name, name)
	}
	return st, nil
}

// maxOwnFile bounds a file that msb wrote about a sandbox, in bytes: more than a policy with all its includes.
const maxOwnFile = 128 << 20

// readOwn reads a file that msb wrote. It follows no link and waits for nobody who writes: behind either is a file of
// somebody else.
func readOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxOwnFile))
}

// checkWritten refuses what a run would write to and msb did not make: through a link it would write over a file of
// somebody else, and at a pipe it would wait for ever.
func checkWritten(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() && !e.Type().IsRegular() {
			return fmt.Errorf("%w: %s is no file; move it away", ErrState, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// writeJSON replaces a file of dir's in one rename.
func writeJSON(dir, file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, file), append(b, '\n'), 0o600, renameio.WithStaticPermissions(0o600))
}

func readJSON(dir, file string, v any) error {
	b, err := readOwn(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
