package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// specOf is what supervisors and later starts need to know of cfg, which is filled.
func specOf(cfg *Config, admitted *Admission) state.Spec {
	spec := state.Spec{
		Name: cfg.Name, Policy: string(policies.Encode(cfg.Policy)), PolicyName: cfg.Policy.File, PolicyFile: cfg.PolicyFile, Grants: admitted.Grants,
		NoNet: cfg.NoNet, Containers: cfg.Containers, HTTPProxy: cfg.HTTPProxy, Backend: cfg.Backend, Cold: cfg.Cold, CPUs: cfg.CPUs, Memory: cfg.Memory, Hostname: cfg.Hostname, Env: cfg.Env,
		Audit: cfg.Audit, AuditLabels: cfg.AuditLabels, Pcap: cfg.Pcap, PcapOptions: cfg.PcapOptions, Ports: cfg.Ports, Directories: cfg.Directories, Hide: cfg.Hide, DirectoryUser: cfg.DirectoryUser,
		IdleStop: cfg.IdleStop, Lifetime: cfg.Lifetime, ReadOnly: cfg.ReadOnly, Tmpfs: cfg.Tmpfs, AutoRemove: cfg.AutoRemove, Restart: cfg.Restart, Volumes: cfg.Volumes, Caches: cfg.Caches,
	}
	if cfg.Floor != nil {
		spec.Floor, spec.Between = floorTexts(cfg.Floor)
	}
	return spec
}

// floorTexts are a floor, and the policies under it that are above the sandbox's own.
func floorTexts(floor *policies.Policy) (top string, between []string) {
	for ; floor.Floor != nil; floor = floor.Floor {
		between = slices.Insert(between, 0, string(policies.Encode(floor)))
	}
	return string(policies.Encode(floor)), between
}

// newStored is what cfg, which is filled, and its image become.
func newStored(name string, cfg *Config, img *image.Image, admitted *Admission) *state.Stored {
	st := &state.Stored{
		Version: state.StoredVersion, Spec: specOf(cfg, admitted), Label: cfg.Label, Labels: cfg.Labels, Created: time.Now().UTC().Round(0),
		PolicyPath: cfg.Policy.Path, Disk: cfg.Disk, Image: cfg.Image, PolicyImage: cfg.PolicyImage, ImageDigest: img.Digest, ImageConfig: img.Config,
		Parent: cfg.parent, ParentCreated: cfg.parentCreated, Root: cfg.root, RootCreated: cfg.rootCreated, Children: cfg.Children,
		HideCredentials: cfg.HideCredentials, OperatorDirectories: cfg.OperatorDirectories, OperatorVolumes: cfg.OperatorVolumes,
	}
	st.Name = name
	if cfg.Floor != nil {
		top := cfg.Floor
		for top.Floor != nil {
			top = top.Floor
		}
		st.FloorPath = top.Path
	}
	if st.Hostname == "" {
		st.Hostname = name
	}
	return st
}

// configOf is what a run of it starts from. A policy file is read again: it is what counts, as for `msb run`.
func configOf(st *state.Stored) (cfg Config, err error) {
	cfg = Config{
		PolicyFile: st.PolicyFile, NoNet: st.NoNet, Containers: st.Containers, HTTPProxy: st.HTTPProxy, Backend: st.Backend, Cold: st.Cold, CPUs: st.CPUs, Memory: st.Memory,
		Disk: st.Disk, Image: st.Image, PolicyImage: st.PolicyImage, Pull: image.PullMissing, Hostname: st.Hostname, Env: st.Env,
		Audit: st.Audit, AuditLabels: st.AuditLabels, Pcap: st.Pcap, PcapOptions: st.PcapOptions,
		Ports: st.Ports, Directories: st.Directories, Hide: st.Hide, HideCredentials: st.HideCredentials, DirectoryUser: st.DirectoryUser, IdleStop: st.IdleStop, Lifetime: st.Lifetime,
		OperatorDirectories: st.OperatorDirectories, RealDirectories: true, ReadOnly: st.ReadOnly, Tmpfs: st.Tmpfs, AutoRemove: st.AutoRemove, Restart: st.Restart, Volumes: st.Volumes, OperatorVolumes: st.OperatorVolumes, Caches: st.Caches, Children: st.Children, parent: st.Parent, parentCreated: st.ParentCreated, root: st.Root, rootCreated: st.RootCreated,
	}
	if st.PolicyFile == "" {
		if cfg.Policy, err = policies.Parse(st.PolicyName, []byte(st.Policy), nil); err == nil {
			cfg.Policy.Path = st.PolicyPath
		}
	} else {
		cfg.Policy, err = loadPolicy(st.PolicyFile, fmt.Sprintf("sandbox %s starts with this file: put it back, or `msb rm %s` and make the sandbox again", st.Name, st.Name))
	}
	if err == nil && st.Floor != "" {
		if cfg.Floor, err = st.ReadFloor(); err == nil {
			top := cfg.Floor
			for ; top.Floor != nil; top = top.Floor {
				top.Path = st.FloorPath // a child's parents took what the floor names
			}
			top.Path = st.FloorPath
		}
	}
	return cfg, err
}

func namedPath(h *Home, name string, file ...string) string {
	return filepath.Join(append([]string{h.dir, state.NamedDir, name}, file...)...)
}

// checkRealDir refuses a link in the place of a sandbox's directory: nothing that msb writes or removes goes through one.
func checkRealDir(h *Home, name string) error {
	info, err := os.Lstat(namedPath(h, name))
	if err != nil {
		return missing(name, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory, and a link is not followed; move it away", ErrState, namedPath(h, name))
	}
	return nil
}

// loadStored reads a named sandbox's state.
func loadStored(h *Home, name string) (*state.Stored, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := checkRealDir(h, name); err != nil {
		return nil, err
	}
	st, err := state.ReadStored(namedPath(h, name), name)
	if err == nil && !h.made.IsZero() && !st.Created.Equal(h.made) {
		return nil, fmt.Errorf("%w: %s; another sandbox has the name now", ErrNoSandbox, name)
	}
	return st, err
}
