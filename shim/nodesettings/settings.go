package nodesettings

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/msb-project/msb/policies"
)

// Where the operator says what holds for the node's pods, unless the settings name other files.
const (
	DefaultPath    = "/etc/msb/shim.toml"
	DefaultFloor   = "/etc/msb/floor.toml"
	DefaultHome    = "/var/lib/msb"
	DefaultRecords = "/var/log/msb"
	DefaultKubelet = "/var/lib/kubelet"
)

// DefaultOverhead is what a machine gets beside its pod's memory limit, in bytes: the guest's kernel and agent, and the page
// cache of the directory server's files.
const DefaultOverhead = 128 << 20

// MinMemory and DefaultDisk are the sandbox's, in bytes.
const (
	MinMemory   = 96 << 20
	DefaultDisk = 10 << 30
)

// Values of Settings.HostProfiles.
const (
	ProfilesRefuse = "refuse"
	ProfilesDrop   = "drop"
)

// Settings are the runtime's options.
type Settings struct {
	// Home is msb's state directory: caches that pods share, and a directory for each machine that runs.
	Home string `toml:"home"`
	// Floor is the operator's policy; that of the default path may be missing.
	Floor string `toml:"floor"`
	// Records is where captures and audit logs of pods go that ask for them.
	Records string `toml:"records"`
	// Nameservers are the resolvers that are asked of those in a pod's resolv.conf; without the key all of them are.
	Nameservers []netip.Addr `toml:"nameservers"`
	// Node is the node's name in audit logs.
	Node string `toml:"node"`
	// Kubelet is the kubelet's directory, in which a pod's volumes are.
	Kubelet string `toml:"kubelet"`
	// Backend is "auto", "krun" or "qemu".
	Backend string `toml:"backend"`
	// Memory is a machine's whose pod has no limit, Overhead is added to the limit of one that has, Disk is the scratch disk
	// for what all containers of a pod write.
	Memory   string `toml:"memory"`
	Overhead string `toml:"memory_overhead"`
	Disk     string `toml:"disk"`
	// CPUs are a machine's whose pod has no limit.
	CPUs int `toml:"cpus"`
	// HostProfiles is "refuse", or "drop" for pods with seccomp, AppArmor and SELinux profiles, which are then not applied.
	HostProfiles string `toml:"host_profiles"`

	// MemoryBytes, OverheadBytes and DiskBytes are what Read made of the texts above.
	MemoryBytes   int64 `toml:"-"`
	OverheadBytes int64 `toml:"-"`
	DiskBytes     int64 `toml:"-"`
	// File is where the shim has them from; "" if they are in containerd's configuration.
	File string `toml:"-"`
}

// New returns the settings of a node that has none.
func New() *Settings {
	return &Settings{
		Home: DefaultHome, Records: DefaultRecords, Kubelet: DefaultKubelet, Memory: "512M",
		Overhead: policies.FormatSize(DefaultOverhead), Disk: policies.FormatSize(DefaultDisk),
		CPUs: 1, HostProfiles: ProfilesRefuse,
	}
}

// DropProfiles tells whether profiles of the node's kernel are left out.
func (s *Settings) DropProfiles() bool { return s.HostProfiles == ProfilesDrop }

// Read takes over the keys of a TOML text, which errors call name, and checks all of them.
func (s *Settings) Read(name, text string) error {
	meta, err := toml.Decode(text, s)
	if err != nil {
		return fmt.Errorf("%s: %w; docs/kubernetes.md shows how each key is written", name, err)
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return fmt.Errorf("%s: unknown key %s; take it out, or see docs/kubernetes.md", name, keys[0])
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *Settings) check() (err error) {
	for _, f := range []struct {
		key, text string
		to        *int64
	}{{"memory", s.Memory, &s.MemoryBytes}, {"memory_overhead", s.Overhead, &s.OverheadBytes}, {"disk", s.Disk, &s.DiskBytes}} {
		if *f.to, err = policies.ParseSize(f.text); err != nil {
			return fmt.Errorf("%s: %w", f.key, err)
		}
	}
	if s.MemoryBytes < MinMemory {
		return fmt.Errorf("memory: %q is too little for a machine; write %q or more", s.Memory, policies.FormatSize(MinMemory))
	}
	if s.CPUs < 1 {
		return fmt.Errorf("cpus: %d; write 1 or more", s.CPUs)
	}
	if backends := []string{"auto", "krun", "qemu"}; s.Backend != "" && !slices.Contains(backends, s.Backend) {
		return fmt.Errorf("backend: %q; write one of %s", s.Backend, strings.Join(backends, ", "))
	}
	for _, f := range []struct{ key, path string }{{"home", s.Home}, {"records", s.Records}, {"kubelet", s.Kubelet}, {"floor", s.Floor}} {
		if f.path != "" && !filepath.IsAbs(f.path) || f.path == "" && f.key != "floor" {
			return fmt.Errorf("%s: %q is no absolute path", f.key, f.path)
		}
	}
	if s.Node == "" {
		if s.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("node: the node's host name: %w", err)
		}
	}
	if s.HostProfiles != ProfilesRefuse && s.HostProfiles != ProfilesDrop {
		return fmt.Errorf("host_profiles: %q; write %q or %q", s.HostProfiles, ProfilesRefuse, ProfilesDrop)
	}
	return nil
}
