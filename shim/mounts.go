package shim

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// mountOf converts one mount. ok is false for one that is refused.
func mountOf(m *specs.Mount, r *refusals) (out sandbox.ContainerMount, ok bool) {
	out = sandbox.ContainerMount{Type: m.Type, Target: m.Destination}
	before := len(r.found)
	at := " of the mount at " + m.Destination
	for _, o := range m.Options {
		if !mountOption(&out, o) {
			r.add(true, "the option "+o+at, leaveOut)
		}
	}
	switch out.Type {
	case "cgroup2":
		out.Type = "cgroup"
	case "bind":
		var err error
		// The guest's part of the path is walked in the guest; this one is the kubelet's or the operator's.
		if out.Source, err = filepath.EvalSymlinks(m.Source); err != nil {
			r.add(true, "the source"+at+" ("+err.Error()+")", "make it first")
		}
	case "proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup":
	default:
		r.add(true, "the type "+m.Type+at, "share a directory or file of the node (bind), or use tmpfs")
	}
	r.add(!filepath.IsAbs(m.Destination), "the relative path"+at, "write an absolute one")
	r.add(len(m.UIDMappings)+len(m.GIDMappings) > 0, "the id mapping"+at, leaveOut)
	return out, len(r.found) == before
}

// podShm replaces the /dev/shm that CRI shares between a pod's containers, a tmpfs of the node, by one of the container's own,
// of CRI's size: programs map what is in it, and each container has its own IPC namespace, too.
func podShm(spec *specs.Spec, m *specs.Mount) specs.Mount {
	pod := spec.Annotations[annotationSandbox]
	if pod == "" || m.Destination != "/dev/shm" || !strings.HasSuffix(m.Source, "/sandboxes/"+pod+"/shm") {
		return *m
	}
	return specs.Mount{Destination: m.Destination, Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", "size=64M"}}
}

// mountOption takes an option over, and tells whether the mount is then as the option asks.
func mountOption(m *sandbox.ContainerMount, option string) bool {
	switch option {
	case "bind", "rbind":
		m.Type = "bind"
	case "ro", "rro":
		m.ReadOnly = true
	case "rw":
		m.ReadOnly = false
	case "nosuid":
		m.NoSuid = true
	case "nodev":
		m.NoDev = true
	case "noexec":
		m.NoExec = true
	case "suid", "dev", "exec": // as it is without
	case "private", "rprivate", "relatime", "strictatime", "defaults": // how access times are kept isn't promised
	default:
		return mountData(m, option)
	}
	return true
}

// mountData takes over what file systems are told.
func mountData(m *sandbox.ContainerMount, option string) bool {
	key, text, _ := strings.Cut(option, "=")
	switch {
	case m.Type == "devpts": // the guest's agent makes it: newinstance, for group 5, ptmx for everybody
		return strings.Contains(" newinstance ptmxmode=0666 mode=0620 gid=5 ", " "+option+" ")
	case m.Type != "tmpfs":
		return false
	case key == "size":
		size, err := policies.ParseSize(text)
		m.SizeBytes = size
		return err == nil && size > 0
	case key == "mode":
		mode, err := strconv.ParseUint(text, 8, 12)
		m.Mode = uint32(mode)
		return err == nil && mode > 0
	default:
		return false
	}
}
