package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Defaults of a sandbox that says nothing else.
const (
	DefaultImage  = "builtin"
	DefaultCPUs   = 1
	DefaultMemory = 512 << 20 // bytes
	// MinMemory is the least that a sandbox starts with, in bytes.
	MinMemory = vm.MinMemoryMiB << 20
)

// ErrConfig is wrapped by errors of Start about its Config.
var ErrConfig = errors.New("unusable sandbox configuration")

// Config says what to start. The zero value is the built-in image, one CPU, 512 MiB and no network access.
type Config struct {
	// Name makes a sandbox that is kept (Create): the next start has its disk, placeholders and authority. A sandbox
	// without a name leaves nothing behind.
	Name string
	// Label is a word of the caller's own that is stored with a named sandbox (Status.Label); msb doesn't interpret it.
	Label string
	// Labels are the user's own, and are stored with a named sandbox (Status.Labels); msb doesn't interpret them.
	Labels map[string]string
	// Home is the state directory; "" is $MSB_HOME, else ~/.msb.
	Home string
	// Program is the msb to re-execute as supervisor and VMM; "" is this very executable, also when an upgrade has put
	// another in its place, and must then call MaybeRun first thing in main.
	Program string

	// Policy says what the sandbox may reach; nil is policies.Default(), which allows nothing.
	Policy *policies.Policy
	// PolicyFile is watched: when it changes and is valid, it replaces Policy while the sandbox runs.
	PolicyFile string
	// Floor is an operator's policy that neither Policy nor a changed PolicyFile can loosen; nil for
	// none.
	Floor *policies.Policy
	// Trust approves all that a policy from a file takes from this machine (policies/grants), for this
	// sandbox. Without it Start returns a *GrantsError for what its user did not approve. A policy that was
	// made in code needs no approval.
	Trust bool
	// HTTPProxy sets HTTP_PROXY and its like for every process, to the gateway's explicit proxy. It is for clients that
	// need a proxy; everything is judged in the same way without it.
	HTTPProxy bool
	// Containers lets Sandbox.Containers add containers while the sandbox runs, whose roots and mounts are directories of
	// this machine. Secret placeholders and the trust of the sandbox's authority are not put into them. All processes of the
	// sandbox stay in the control group of Start's caller.
	Containers bool
	// Pod makes the sandbox a pod of Kubernetes: the guest has the addresses of the network namespace that the caller of
	// Start is in, which must be a pod's own. It is for sandboxes without a name.
	Pod *Pod
	// NoNet gives the guest no network device at all, not even the link to the gateway.
	NoNet bool

	// Image is a reference as package image reads it; "" is DefaultImage.
	Image string
	// PolicyImage says that the policy chose Image, and not the caller: unless that is approved, it is pulled without the
	// user's credentials, and from public addresses only.
	PolicyImage bool
	// Pull says when a registry is asked; "" is image.PullMissing.
	Pull image.Pull
	// Progress gets the events of the image's pull; it may be nil.
	Progress image.Progress

	// Backend is "auto", "krun" or "qemu"; "" is auto.
	Backend string
	// Cold boots the guest; otherwise it may be a copy of a saved machine that has booted (docs/warm-starts.md).
	Cold bool
	CPUs int
	// Memory is the guest's, in bytes.
	Memory int64
	// Disk is the size in bytes of the writable layer on a sparse disk; 0 keeps what the guest writes
	// in its memory.
	Disk int64
	// Hostname is the guest's; "" is the sandbox's id.
	Hostname string
	// Env has KEY=value defaults for every process, above the image's own.
	Env []string

	// Ports are those of this machine that lead to ports of the guest's; see ParsePort. An Address for
	// other machines needs an ingress rule of Policy, and a Floor one of its own for any port.
	Ports []Port
	// Directories are the directories of this machine that the guest sees, and Hide patterns of names that are hidden in
	// them (path.Match; a pattern with a slash is a path from a directory's top).
	Directories []Directory
	Hide        []string
	// RealDirectories says that Directories are real paths (ResolveDirectories): one that has become a link is refused.
	RealDirectories bool
	// HideCredentials also hides files that look like credentials (Credentials).
	HideCredentials bool
	// OperatorDirectories says that the author of Floor chose Directories; under a Floor no others are allowed.
	OperatorDirectories bool
	// DirectoryUser owns what is in Directories and Caches, as a user of ExecOptions; "" is the image's.
	DirectoryUser string

	// Volumes are disks that outlive the sandbox. A missing one is made, unless it is read-only. Under a Floor none are
	// allowed, unless OperatorVolumes says that the author of Floor bounds them.
	Volumes         []Volume
	OperatorVolumes bool

	// Caches are tools, of CacheTools, whose caches start with what was committed from other sandboxes (Caches.Commit).
	// What this sandbox adds is its own. They belong to DirectoryUser and are in that user's home. Under a Floor none are
	// allowed.
	Caches []string

	// ReadOnly makes the guest's root read-only, but not what is mounted in it (Tmpfs, writable Directories). It guards
	// against mistakes and unprivileged users; the guest's root can undo it.
	ReadOnly bool
	// Tmpfs are file systems in the guest's memory, new at each start.
	Tmpfs []Tmpfs

	// Audit is the file that gets every verdict; "" is one in the run directory, which is removed with the sandbox.
	Audit string
	// AuditLabels are on every line of Audit, as "labels"; see audit.CheckLabels.
	AuditLabels map[string]string
	// Pcap is the file that gets every frame of the link; "" captures none.
	Pcap        string
	PcapOptions PcapOptions
	// Learn is the file that gets, when the sandbox ends, the smallest policy that would have allowed
	// what was seen; "" learns nothing.
	Learn string
	// Keep keeps the run directory (console and audit log, writable disk) when the sandbox ends.
	Keep bool

	// AutoRemove removes a sandbox with a name when its run ends, for any reason. The end of the job MainJob ends the run.
	AutoRemove bool
	// Restart says when the main job's command is restarted while the sandbox runs.
	Restart Restart
	// Attached ends the run when this process ends, for any reason. Without it, a sandbox with a name runs on.
	Attached bool

	// IdleStop ends the sandbox when it has been idle for this long; 0 lets it run. Idle means that no command, copy, ssh
	// session or other call of a client is in progress, except those for figures, no job runs, and nobody is connected to a
	// published port. A named sandbox can be started again.
	IdleStop time.Duration
	// Lifetime ends the sandbox when it has run for this long, whatever it does; 0 lets it run. A named sandbox that is
	// stopped earlier has the rest for its next runs; once the time is up, the next start begins a new lifetime. The guest
	// gets a notice before either end (docs/lifetimes.md).
	Lifetime time.Duration

	// Notice is called before the guest boots with the chosen backend and the reason, and, by another goroutine, when a
	// changed PolicyFile was accepted or refused. It may be nil.
	Notice func(string)

	// Children is the budget for the sandbox's children (Children); nil for none.
	Children *ChildBudget

	parent, root               string // of a child
	parentCreated, rootCreated time.Time

	review      bool               // forReview has been there
	ownDisk     bool               // the writable disk is in the run's directory already
	forget      string             // certificates, in PEM form, that the disk is rid of
	cacheWork   string             // the disk of caches that are being changed
	credentials *state.Credentials // what HideCredentials hides, once it was searched for
}

// Pod is the network of a pod.
type Pod = state.Pod

func (c *Config) fill() error {
	if c.Program == "" {
		if !mayRun {
			return fmt.Errorf("%w: this program would start itself as supervisor, but hasn't called MaybeRun; call it first thing in main, or set Program to an installed msb", ErrConfig)
		}
		c.Program = runner.ThisProgram
	}
	if c.Policy == nil {
		c.Policy = policies.Default()
	}
	if c.Image == "" {
		c.Image = DefaultImage
	}
	if c.CPUs == 0 {
		c.CPUs = DefaultCPUs
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Backend == "" {
		c.Backend = vm.Auto
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	return c.check()
}

func (c *Config) check() error {
	if c.CPUs < 1 || c.CPUs > vm.MaxCPUs {
		return fmt.Errorf("%w: %d CPUs; give it 1 to %d", ErrConfig, c.CPUs, vm.MaxCPUs)
	}
	if mib := c.Memory >> 20; mib < vm.MinMemoryMiB || mib > vm.MaxMemoryMiB {
		return fmt.Errorf("%w: %sB of memory; give it %s to %s", ErrConfig, policies.FormatSize(c.Memory), policies.FormatSize(vm.MinMemoryMiB<<20), policies.FormatSize(vm.MaxMemoryMiB<<20))
	}
	if c.Hostname != "" && (len(c.Hostname) > maxHostname || !hostnameForm.MatchString(c.Hostname)) {
		return fmt.Errorf("%w: host name %.80q; use letters, digits, hyphens and dots, at most %d, such as web-1", ErrConfig, c.Hostname, maxHostname)
	}
	if c.AutoRemove && c.Name == "" {
		return fmt.Errorf("%w: AutoRemove is for one with a name; others leave nothing, leave it out", ErrConfig)
	}
	if c.Pod != nil && (c.Name != "" || c.NoNet || len(c.Ports) > 0) {
		return fmt.Errorf("%w: Pod is for one without a Name, that has a network and no Ports; leave one of them out", ErrConfig)
	}
	if err := c.Restart.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if !c.Restart.None() && (c.AutoRemove || c.Name == "") {
		return fmt.Errorf("%w: Restart is for one with a name that stays when its command ends; leave AutoRemove out and give a Name, or leave Restart out", ErrConfig)
	}
	if c.IdleStop < 0 || c.Lifetime < 0 {
		return fmt.Errorf("%w: IdleStop %s, Lifetime %s; give each a time such as 30m, or 0 for none", ErrConfig, c.IdleStop, c.Lifetime)
	}
	if err := errors.Join(c.checkTmpfs(), c.checkVolumes(), c.checkCaches(), state.CheckPorts(c.Ports, c.NoNet, c.Policy, c.Floor), c.checkAuditLabels(), c.checkEnv()); err != nil {
		return err
	}
	for _, f := range []struct{ what, path string }{{"policy file", c.PolicyFile}, {"audit log", c.Audit}, {"capture", c.Pcap}, {"file to learn into", c.Learn}} {
		if ofProcess(f.path) {
			return fmt.Errorf("%w: %s %s: it is an open file of this process, which the sandbox's supervisor does not have; name a file, or for a log a pipe that mkfifo made", ErrConfig, f.what, f.path)
		}
	}
	return CheckBackend(c.Backend)
}

func (c *Config) checkAuditLabels() error {
	if err := audit.CheckLabels(c.AuditLabels); err != nil {
		return fmt.Errorf("%w: AuditLabels: %w", ErrConfig, err)
	}
	return nil
}

// checkEnv refuses variables that would replace a secret's placeholder: `-e TOKEN`, as users of other tools write it, would
// give the real value to the guest.
func (c *Config) checkEnv() error {
	placeholders := map[string]string{}
	for _, s := range c.Policy.Secrets {
		placeholders[s.Name] = ""
	}
	return noPlaceholder(c.Env, placeholders)
}

// noPlaceholder refuses variables that have the name of a secret, unless they hold its placeholder.
func noPlaceholder(env []string, placeholders map[string]string) error {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if placeholder, secret := placeholders[name]; secret && (placeholder == "" || value != placeholder) {
			return fmt.Errorf("%w: the policy has a secret %s, of which the guest gets a placeholder in the variable of that name: leave the variable out, or rename the secret in the policy", ErrConfig, name)
		}
	}
	return nil
}

// maxHostname is how many bytes Linux takes (__NEW_UTS_LEN).
const maxHostname = 64

// hostnameForm is that of RFC 1123, section 2.1.
var hostnameForm = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// ofProcess reports whether a path leads to an open file of the process that opens it, as /dev/stdout and /dev/fd/3 do: for
// another process it is another file.
func ofProcess(path string) bool {
	const maxLinks = 40 // as in the kernel
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if path == "" || err != nil {
			return false
		}
		if strings.HasPrefix(dir, "/proc/") || dir == "/dev/fd" {
			return true
		}
		path = filepath.Join(dir, filepath.Base(path))
		link, err := os.Readlink(path)
		if err != nil {
			return false
		}
		if path = link; !filepath.IsAbs(link) {
			path = filepath.Join(dir, link)
		}
	}
	return false
}

// CheckBackend says whether a Config may name this backend. It doesn't check the machine.
func CheckBackend(name string) error { return vm.CheckChoice(name, hypervisors.All("")...) }
