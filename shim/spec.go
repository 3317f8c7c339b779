package shim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// containerOf converts an OCI spec to what the guest makes of it. root is the directory of the host with the container's
// root, hostname the pod's, for a container that joins the pod's host name. What can't be honoured is an error that names
// each part of it.
func containerOf(id, root, hostname string, spec *specs.Spec, s *settings) (sandbox.ContainerConfig, error) {
	r := &refusals{dropProfiles: s.DropProfiles() || spec.Annotations[annotationType] == typeSandbox}
	r.spec(spec)
	cfg := sandbox.ContainerConfig{ID: id, Root: root, Hostname: spec.Hostname}
	if spec.Root != nil {
		cfg.ReadOnlyRoot = spec.Root.Readonly
	}
	if cfg.Hostname == "" {
		cfg.Hostname = hostname
	}
	if spec.Process != nil {
		cfg.Process = processOf(spec.Process, r)
	}
	r.add(len(spec.Mounts) > sandbox.MaxContainerMounts, fmt.Sprintf("%d mounts", len(spec.Mounts)), fmt.Sprintf("have at most %d of them", sandbox.MaxContainerMounts))
	for i := range spec.Mounts[:min(len(spec.Mounts), sandbox.MaxContainerMounts)] {
		mount := podShm(spec, &spec.Mounts[i])
		if m, ok := mountOf(&mount, r); ok {
			cfg.Mounts = append(cfg.Mounts, m)
		}
	}
	if l := spec.Linux; l != nil {
		cfg.MaskedPaths, cfg.ReadOnlyPaths = l.MaskedPaths, l.ReadonlyPaths
		cfg.Sysctls = l.Sysctl
		cfg.Resources = resourcesOf(l.Resources, r)
	}
	return cfg, r.err()
}

// processOf converts a process of a spec, or of an exec.
func processOf(p *specs.Process, r *refusals) sandbox.ContainerProcess {
	r.process(p)
	out := sandbox.ContainerProcess{
		Args: p.Args, Env: p.Env, Cwd: p.Cwd,
		UID: p.User.UID, GID: p.User.GID, AdditionalGIDs: p.User.AdditionalGids, Umask: p.User.Umask,
		NoNewPrivileges: p.NoNewPrivileges, Terminal: p.Terminal, OOMScoreAdj: p.OOMScoreAdj,
	}
	if c := p.Capabilities; c != nil {
		out.Capabilities = sandbox.Capabilities{
			Bounding: c.Bounding, Effective: c.Effective, Inheritable: c.Inheritable, Permitted: c.Permitted, Ambient: c.Ambient,
		}
	}
	for _, l := range p.Rlimits {
		out.Rlimits = append(out.Rlimits, agentclient.Rlimit{Name: l.Type, Soft: l.Soft, Hard: l.Hard})
	}
	if b := p.ConsoleSize; b != nil && p.Terminal {
		out.ConsoleSize = sizeOf(uint32(min(b.Width, math.MaxUint16)), uint32(min(b.Height, math.MaxUint16)))
	}
	return out
}

// network returns the path of the network namespace that CNI made for a pod; "" is a new one.
func network(spec *specs.Spec) string {
	if spec.Linux == nil {
		return ""
	}
	for _, n := range spec.Linux.Namespaces {
		if n.Type == specs.NetworkNamespace {
			return n.Path
		}
	}
	return ""
}

// refusals collects what of a spec can't be honoured.
type refusals struct {
	// dropProfiles leaves profiles of the node's kernel out, as the operator says, or because nothing runs under them: the
	// kubelet gives the pause container of every pod a seccomp profile.
	dropProfiles bool
	found        []string
}

// add names a part of a spec that can't be honoured, if it is there, and the remedy.
func (r *refusals) add(there bool, what, remedy string) {
	if there {
		r.found = append(r.found, what+" can't be honoured; "+remedy)
	}
}

func (r *refusals) err() error {
	if len(r.found) == 0 {
		return nil
	}
	return refused(strings.Join(r.found, "\n"))
}

const leaveOut = "leave it out"

// spec looks at all but process, mounts and resources.
func (r *refusals) spec(s *specs.Spec) {
	r.add(s.Process == nil, "a spec without process", "add one")
	r.add(s.Domainname != "", "domainname "+s.Domainname, leaveOut)
	r.add(hasHooks(s.Hooks), "hooks", "they would run on the node, beside the container and not in it: leave them out")
	r.add(s.Solaris != nil || s.Windows != nil || s.VM != nil || s.ZOS != nil || s.FreeBSD != nil, "a spec for another system than Linux", "build it for Linux")
	if s.Linux == nil {
		r.add(true, "a spec without linux", "add one with namespaces")
		return
	}
	l := s.Linux
	r.namespaces(l.Namespaces)
	r.add(len(l.UIDMappings)+len(l.GIDMappings) > 0, "user namespaces (hostUsers: false)", "the pod's own kernel stands in for them: leave hostUsers out")
	r.add(len(l.Devices) > 0, "devices of the node ("+deviceNames(l.Devices)+")", "a microVM has none: leave them, and privileged, out")
	r.add(len(l.NetDevices) > 0, "network devices of the node", leaveOut)
	r.add(l.Seccomp != nil && !r.dropProfiles, "a seccomp profile", profileRemedy)
	r.add(l.MountLabel != "" && !r.dropProfiles, "the SELinux label "+l.MountLabel, profileRemedy)
	propagation := l.RootfsPropagation
	r.add(!slices.Contains([]string{"", "private", "rprivate"}, propagation), "rootfsPropagation "+propagation, "mounts don't cross the wall of the microVM: write rprivate")
	r.add(l.IntelRdt != nil, "intelRdt", leaveOut)
	r.add(l.MemoryPolicy != nil, "memoryPolicy", leaveOut)
	r.add(l.Personality != nil, "personality", leaveOut)
	r.add(len(l.TimeOffsets) > 0, "timeOffsets", leaveOut)
}

const profileRemedy = `it is for the node's kernel, which the container doesn't run on: leave it out, or have the node's operator write host_profiles = "drop" in the runtime's options`

// knownNamespaces are those that a container has in the guest, or that are refused by their usual names.
var knownNamespaces = []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace, specs.UserNamespace}

// namespaces refuses those that are the node's.
func (r *refusals) namespaces(all []specs.LinuxNamespace) {
	own := map[specs.LinuxNamespaceType]*specs.LinuxNamespace{}
	for i := range all {
		own[all[i].Type] = &all[i]
		r.add(!slices.Contains(knownNamespaces, all[i].Type), fmt.Sprintf("a namespace of the type %q", all[i].Type), leaveOut)
	}
	for _, n := range []struct {
		kind specs.LinuxNamespaceType
		name string
	}{
		{specs.NetworkNamespace, "hostNetwork (no network namespace)"},
		{specs.PIDNamespace, "hostPID (no pid namespace)"},
		{specs.IPCNamespace, "hostIPC (no ipc namespace)"},
		{specs.UTSNamespace, "the node's host name (no uts namespace)"},
		{specs.MountNamespace, "the node's mounts (no mount namespace)"},
	} {
		r.add(own[n.kind] == nil, n.name, "a microVM shares none of the node's namespaces: leave it out")
	}
	pid := own[specs.PIDNamespace]
	r.add(pid != nil && pid.Path != "", "shareProcessNamespace (a pid namespace of another container)", leaveOut)
	r.add(own[specs.UserNamespace] != nil, "a user namespace (hostUsers: false)", "the pod's own kernel stands in for it: leave hostUsers out")
}

// process looks at what containers and execs have alike.
func (r *refusals) process(p *specs.Process) {
	r.add(len(p.Args) == 0, "a process without args", "name a command")
	r.add(p.User.Username != "", "the user name "+p.User.Username, "write its number")
	r.add(p.CommandLine != "", "commandLine", "write args")
	r.add(p.ApparmorProfile != "" && !r.dropProfiles, "the AppArmor profile "+p.ApparmorProfile, profileRemedy)
	r.add(p.SelinuxLabel != "" && !r.dropProfiles, "the SELinux label "+p.SelinuxLabel, profileRemedy)
	r.add(p.Scheduler != nil, "scheduler", leaveOut)
	r.add(p.IOPriority != nil, "ioPriority", leaveOut)
	r.add(p.ExecCPUAffinity != nil, "execCPUAffinity", leaveOut)
}

func hasHooks(h *specs.Hooks) bool {
	return h != nil && len(h.Prestart)+len(h.CreateRuntime)+len(h.CreateContainer)+len(h.StartContainer)+len(h.Poststart)+len(h.Poststop) > 0 //nolint:staticcheck // Prestart is deprecated, and set all the same
}

// deviceNames are the first few: privileged has every device of the node, which isn't for a pod's events.
func deviceNames(all []specs.LinuxDevice) string {
	const most = 3
	var names []string
	for _, d := range all[:min(len(all), most)] {
		names = append(names, d.Path)
	}
	if more := len(all) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
