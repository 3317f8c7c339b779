package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// The defaults of the bounds. Together they limit what an agent takes from the host: 4 sandboxes, 8 GiB of memory.
const (
	DefaultSandboxes = 4
	DefaultCPUs      = 2
	DefaultMemory    = 2 << 30  // bytes, of one sandbox
	DefaultDisk      = 10 << 30 // bytes, of one sandbox; the file is sparse
	DefaultIdleStop  = 30 * time.Minute
)

// Options say what a server lets its client do. The zero value allows no network, the built-in image and those of the
// cache.
type Options struct {
	// Home is the state directory.
	Home *sandbox.Home
	// Program and Backend are as in sandbox.Config.
	Program, Backend string
	// Floor is the operator's policy: nothing that a client asks for goes beyond it. nil is no network.
	Floor *policies.Policy
	// Images are those that may be pulled, beside the floor's own; others have to be in the cache.
	Images []string
	// Sandboxes bounds how many there are at once, CPUs, Memory and Disk one of them; 0 is the default.
	Sandboxes, CPUs int
	Memory, Disk    int64
	// Tools are toolsets (Toolsets, AllTools) beside the default tools.
	Tools []string
	// Directories are the directories of this machine that every sandbox sees; Hide and HideCredentials hide files in them,
	// as in sandbox.Config.
	Directories     []sandbox.Directory
	Hide            []string
	HideCredentials bool
	// Children is the budget for children of a sandbox; nil for none.
	Children *sandbox.ChildBudget
	// IdleStop is when a sandbox that nobody uses is stopped; 0 is never.
	IdleStop time.Duration
	// Lifetime is when a sandbox is stopped whatever it does; 0 is never.
	Lifetime time.Duration
}

// Check says why a server with these options would not start, or returns warnings about one that would.
func (o Options) Check() (warnings []string, err error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	return o.warnings(), nil
}

func (o *Options) fill() error {
	if o.Sandboxes < 0 || o.CPUs < 0 || o.Memory < 0 || o.Disk < 0 || o.IdleStop < 0 || o.Lifetime < 0 {
		return errors.New("a bound below 0: give it at least 1, or leave it out")
	}
	if err := sandbox.CheckBackend(o.Backend); err != nil {
		return err
	}
	if err := checkToolsets(o.Tools); err != nil {
		return err
	}
	for _, ref := range o.Images {
		if err := image.CheckReference(ref); err != nil {
			return err
		}
	}
	if o.Floor == nil {
		o.Floor = policies.Default()
	}
	if o.Floor.Agent != nil {
		if err := o.agent(o.Floor.Agent); err != nil {
			return err
		}
	}
	if o.Sandboxes == 0 {
		o.Sandboxes = DefaultSandboxes
	}
	if o.CPUs == 0 {
		o.CPUs = DefaultCPUs
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Disk == 0 {
		o.Disk = DefaultDisk
	}
	if _, err := o.Home.Trust().Admit(o.Floor, sandbox.AdmitOptions{}); err != nil { // a floor whose grants nobody approved holds nothing
		return err
	}
	cfg := o.base(&machineArgs{})
	cfg.Policy, cfg.RealDirectories = o.Floor, false
	err := cfg.ResolveDirectories(o.Home) // resolved once: a guest may put links into a directory that it can write to
	o.Directories = cfg.Directories
	return err
}

// agent applies the floor's [agent]: options that are not given are the file's, and an option that goes beyond the file is
// an error.
func (o *Options) agent(a *policies.Agent) error {
	chosen := o.Tools
	for _, l := range []struct {
		key        string
		have, most *[]string
	}{{"images", &o.Images, &a.Images}, {"tools", &o.Tools, &a.Tools}} {
		for _, name := range *l.have {
			if !slices.Contains(*l.most, name) {
				return fmt.Errorf("%q is not among agent.%s of the policy file; add it there, or leave it out", name, l.key)
			}
		}
		*l.have = *l.most
	}
	if listOf(chosen) != "" { // one of those that the file permits
		o.Tools = chosen
	}
	if err := checkToolsets(o.Tools); err != nil {
		return fmt.Errorf("agent.tools: %w", err)
	}
	var err error
	if o.Directories, err = narrowed(a.Directories, o.Directories); err != nil {
		return err
	}
	for _, n := range []struct {
		key  string
		have *int64
		most int64
		unit func(int64) string
	}{
		{"memory", &o.Memory, a.Memory, policies.FormatSize}, {"disk", &o.Disk, a.Disk, policies.FormatSize},
		{"idle_stop", (*int64)(&o.IdleStop), int64(a.IdleStop), inTime}, {"lifetime", (*int64)(&o.Lifetime), int64(a.Lifetime), inTime},
	} {
		if n.most > 0 && *n.have > n.most {
			return beyondAgent(n.key, n.unit(*n.have), n.unit(n.most))
		}
		if n.most > 0 && *n.have == 0 {
			*n.have = n.most
		}
	}
	for _, n := range []struct {
		key  string
		have *int
		most int
	}{{"sandboxes", &o.Sandboxes, a.Sandboxes}, {"cpus", &o.CPUs, a.CPUs}} {
		if n.most > 0 && *n.have > n.most {
			return beyondAgent(n.key, strconv.Itoa(*n.have), strconv.Itoa(n.most))
		}
		if n.most > 0 && *n.have == 0 {
			*n.have = n.most
		}
	}
	o.Children = a.Children
	if a.Secrets != nil {
		floor := *o.Floor
		floor.Secrets = slices.DeleteFunc(slices.Clone(floor.Secrets), func(s policies.Secret) bool { return !slices.Contains(a.Secrets, s.Name) })
		o.Floor = &floor
	}
	return nil
}

// narrowed are the directories of the file, read-only where a flag says so. A directory that a flag names has to be among
// them, by any path to it.
func narrowed(file, flags []sandbox.Directory) ([]sandbox.Directory, error) {
	out := slices.Clone(file)
	for _, d := range flags {
		i := slices.IndexFunc(file, func(f sandbox.Directory) bool {
			return f.Guest == d.Guest && realPath(f.Host) == realPath(d.Host) && (f.Writable || !d.Writable)
		})
		if i < 0 {
			return nil, fmt.Errorf("%s is not among agent.directories of the policy file; add it there, or leave it out", d)
		}
		out[i].Writable, out[i].CopyOnWrite = out[i].Writable && d.Writable, d.CopyOnWrite
	}
	return out, nil
}

// realPath resolves the links of a path; a path that doesn't exist stays as it is.
func realPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// flagOf maps keys of [agent] to the flags of msb mcp that have another name.
var flagOf = map[string]string{"sandboxes": "max-sandboxes", "cpus": "max-cpus", "memory": "max-memory", "disk": "max-disk", "idle_stop": "idle-stop"}

func beyondAgent(key, have, most string) error {
	return fmt.Errorf("--%s %s is beyond agent.%s of the policy file, which is %s; change it there, or leave the flag out", cmp.Or(flagOf[key], key), have, key, most)
}

func inTime(n int64) string { return time.Duration(n).String() }

// NoBound says that a flag of 0, for no bound, goes beyond a bound of the policy's [agent].
func NoBound(key string, most time.Duration) error { return beyondAgent(key, "0", most.String()) }
