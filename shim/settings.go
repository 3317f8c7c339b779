package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/typeurl/v2"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// Where the node's operator says what holds for its pods, unless the runtime's options name other files.
const (
	defaultSettings = "/etc/msb/shim.toml"
	defaultFloor    = "/etc/msb/floor.toml"
	defaultHome     = "/var/lib/msb"
	defaultRecords  = "/var/log/msb"
	defaultKubelet  = "/var/lib/kubelet"
)

// defaultOverhead is what a machine gets beside its pod's memory limit: the guest's kernel and agent, and the page cache
// of the directory server's files.
const defaultOverhead = 128 << 20

// Values of settings.HostProfiles.
const (
	profilesRefuse = "refuse"
	profilesDrop   = "drop"
)

// settings are the runtime's options: a TOML file, or the same text in containerd's configuration.
type settings struct {
	// Home is msb's state directory: caches that pods share, and a directory for each machine that runs.
	Home string `toml:"home"`
	// Floor is the operator's policy; that of the default path may be missing.
	Floor string `toml:"floor"`
	// Records is where captures and audit logs of pods go that ask for them.
	Records string `toml:"records"`
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

	memory, overhead, disk int64
}

func newSettings() *settings {
	return &settings{
		Home: defaultHome, Records: defaultRecords, Kubelet: defaultKubelet, Memory: "512M", Overhead: policies.FormatSize(defaultOverhead), Disk: policies.FormatSize(sandbox.DefaultDisk),
		CPUs: 1, HostProfiles: profilesRefuse,
	}
}

// loadSettings reads the options that containerd hands over with a container.
func loadSettings(options typeurl.Any) (*settings, error) {
	s := newSettings()
	name, text, err := settingsText(options)
	if err != nil {
		return nil, err
	}
	return s, s.read(name, text)
}

// CheckSettings tells what is wrong with a node's settings.
func CheckSettings(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return newSettings().read(path, string(text))
}

// read takes over the keys of a TOML text, which messages call name.
func (s *settings) read(name, text string) error {
	meta, err := toml.Decode(text, s)
	if err != nil {
		return refused(name + ": " + err.Error())
	}
	if keys := meta.Undecoded(); len(keys) > 0 {
		return refused(fmt.Sprintf("%s: unknown key %s; take it out, or see docs/kubernetes.md", name, keys[0]))
	}
	if err := s.check(); err != nil {
		return refused(name + ": " + err.Error())
	}
	return nil
}

// settingsText finds the TOML text, and what messages call it.
func settingsText(options typeurl.Any) (name, text string, err error) {
	if options == nil || options.GetTypeUrl() == "" {
		b, err := os.ReadFile(defaultSettings)
		if errors.Is(err, fs.ErrNotExist) {
			return defaultSettings, "", nil
		}
		return defaultSettings, string(b), err
	}
	v, err := typeurl.UnmarshalAny(options)
	if err != nil {
		return "", "", refused("runtime options of the type " + options.GetTypeUrl() + " are another runtime's; name msb's with ConfigPath, or as a table of its keys")
	}
	o, ok := v.(*runtimeoptions.Options)
	if !ok {
		return "", "", refused("runtime options of the type " + options.GetTypeUrl() + " are another runtime's; name msb's with ConfigPath, or as a table of its keys")
	}
	if o.GetConfigPath() == "" {
		return "the runtime's options", string(o.GetConfigBody()), nil
	}
	b, err := os.ReadFile(o.GetConfigPath())
	return o.GetConfigPath(), string(b), err
}

func (s *settings) check() (err error) {
	for _, f := range []struct {
		key, text string
		to        *int64
	}{{"memory", s.Memory, &s.memory}, {"memory_overhead", s.Overhead, &s.overhead}, {"disk", s.Disk, &s.disk}} {
		if *f.to, err = policies.ParseSize(f.text); err != nil {
			return fmt.Errorf("%s: %w", f.key, err)
		}
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
	if s.HostProfiles != profilesRefuse && s.HostProfiles != profilesDrop {
		return fmt.Errorf("host_profiles: %q; write %q or %q", s.HostProfiles, profilesRefuse, profilesDrop)
	}
	return nil
}

// dropProfiles tells whether profiles of the node's kernel are left out.
func (s *settings) dropProfiles() bool { return s.HostProfiles == profilesDrop }

// floor reads the operator's policy; nil if there is none.
func (s *settings) floor() (*policies.Policy, error) {
	path := s.Floor
	if path == "" {
		if _, err := os.Lstat(defaultFloor); errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // no floor is no policy
		}
		path = defaultFloor
	}
	p, err := sandbox.LoadPolicy(path)
	if err != nil {
		return nil, refused("the node's floor: " + err.Error())
	}
	return p, nil
}

// onOff reads an annotation that is a switch.
func onOff(key, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "", "off", "false":
		return false, nil
	case "on", "true":
		return true, nil
	}
	return false, refused(fmt.Sprintf("the annotation %s is %q; write \"on\" or \"off\"", key, value))
}
