package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// A pod's policy names values of Kubernetes Secrets by "file:VOLUME/KEY": a volume of the pod, which the kubelet fills for it,
// and a file in it. The supervisor reads them, in the place of the guest, from which the volume is kept.

// tokenPath is where the kubelet has a pod's service-account token mounted.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // G101: a path

// volumeKinds are the kubelet's plugins whose volumes may be sources, and the directory in such a volume with its files.
var volumeKinds = map[string]string{"kubernetes.io~secret": "", "kubernetes.io~projected": "", "kubernetes.io~csi": "mount"}

var (
	podUID     = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)
	volumeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	secretKey  = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)
)

// podDir is the kubelet's directory of a pod; "" of one that no kubelet made.
func podDir(s *settings, annotations map[string]string) string {
	if uid := annotations[annotationPodUID]; podUID.MatchString(uid) {
		return filepath.Join(s.Kubelet, "pods", uid)
	}
	return ""
}

// ownSecrets gives the secrets of a pod's policy that come from its own volumes the paths of their files on the node, and
// returns them. The policy was parsed for this pod alone, and is changed.
func ownSecrets(p *policies.Policy, pod string) (own []policies.Secret, err error) {
	for i := range p.Secrets {
		from := &p.Secrets[i].From
		if from.Kind != policies.FromFile || path.IsAbs(from.Value) {
			continue
		}
		dir, key, err := volumeFile(pod, from.Value)
		if err != nil {
			return nil, refused(fmt.Sprintf("%s: secrets.%s: %v", annotationPolicy, p.Secrets[i].Name, err))
		}
		// Whoever else writes to the volume, another pod's guest perhaps, could put a link to a file of the node there later.
		from.Value, from.Hold = filepath.Join(dir, key), &policies.Hold{Within: dir}
		own = append(own, p.Secrets[i])
	}
	return own, nil
}

// volumeFile finds a file of a pod's volume, and the volume's directory. name is "VOLUME/KEY" in the directory of the annotation.
func volumeFile(pod, name string) (dir, key string, err error) {
	name, within := strings.CutPrefix(name, path.Dir(annotationPolicy)+"/")
	volume, key, two := strings.Cut(name, "/")
	switch {
	case !within || !two || !volumeName.MatchString(volume) || !secretKey.MatchString(key) || strings.HasPrefix(key, ".."):
		return "", "", fmt.Errorf(`a relative path in a pod's policy is "file:VOLUME/KEY", a Secret's volume of the pod and a key in it, not %q`, name)
	case pod == "":
		return "", "", fmt.Errorf("the volume %s is looked for where a kubelet made the pod, and none made this one; without a kubelet name the file by its absolute path, and have it in the floor's [secrets]", volume)
	}
	for kind, below := range volumeKinds {
		dir = filepath.Join(pod, "volumes", kind, volume, below)
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		_, err = root.Stat(key) // no link leads out
		if err = errors.Join(err, root.Close()); err != nil {
			return "", "", fmt.Errorf("the volume %s has no key %s: %w", volume, key, err)
		}
		return dir, key, nil
	}
	return "", "", fmt.Errorf("the pod has no Secret's volume %s, or none of its containers mounts it, and then the kubelet doesn't make it: add it to volumes and to volumeMounts", volume)
}

// hiddenVolumes are the names of a pod's volumes that its policy has as sources.
func hiddenVolumes(p *policies.Policy, pod string) (names []string) {
	if p == nil || pod == "" {
		return nil
	}
	for _, s := range p.Secrets {
		// POD/volumes/KIND/VOLUME/…
		rest, within := strings.CutPrefix(s.From.Value, filepath.Join(pod, "volumes")+"/")
		if parts := strings.Split(rest, "/"); within && s.From.Kind == policies.FromFile && len(parts) > 2 {
			names = append(names, parts[1])
		}
	}
	return names
}

// visible leaves out of a container's mounts what the pod's guest is not to have: the volumes that are sources of its secrets,
// whole or in part (subPath), and the service account's token unless the pod asks for it.
func (p *pod) visible(spec *specs.Spec) *specs.Spec {
	out := *spec
	out.Mounts = slices.DeleteFunc(slices.Clone(spec.Mounts), func(m specs.Mount) bool {
		return path.Clean(m.Destination) == tokenPath && !p.token || slices.ContainsFunc(p.hidden, func(name string) bool { return ofVolume(p.kubelet, m.Source, name) })
	})
	return &out
}

// ofVolume tells whether a mount's source is, or lies in, a volume of the pod.
func ofVolume(pod, source, name string) bool {
	for _, source := range []string{filepath.Clean(source), realPath(source)} {
		for _, pod := range []string{pod, realPath(pod)} {
			rest, within := strings.CutPrefix(source, pod+"/")
			parts := strings.Split(rest, "/")
			switch {
			case !within || len(parts) < 2:
			case parts[0] == "volumes" && len(parts) > 2 && parts[2] == name, parts[0] == "volume-subpaths" && parts[1] == name:
				return true
			}
		}
	}
	return false
}

// kernelFiles are the file systems by which the node's kernel shows the node, the processes that confine the guest among them, or
// is told what to do.
var kernelFiles = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
	unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.AAFS_MAGIC,
	unix.BINFMTFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.NSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.XENFS_SUPER_MAGIC, unix.BINDERFS_SUPER_MAGIC,
	configfsMagic, fusectlMagic, mqueueMagic, rpcPipefsMagic, nfsdMagic,
}

// Those that package unix doesn't name, from fs/configfs, fs/fuse/control.c, ipc/mqueue.c, net/sunrpc/rpc_pipe.c and fs/nfsd/nfsctl.c of Linux.
const (
	configfsMagic  = 0x62656570
	fusectlMagic   = 0x65735543
	mqueueMagic    = 0x19800202
	rpcPipefsMagic = 0x67596969
	nfsdMagic      = 0x6e667364
)

// admits refuses what a hostPath may name of the node that is no pod's: the kernel's files, volumes of other pods, the records of
// all pods, what containerd has told the shims of all containers (bundles), and to write to the shim's settings and programs. The
// sandbox refuses the rest that confines it: msb's state, the floor and the sources of secrets.
func (p *pod) admits(mounts []sandbox.ContainerMount, bundles string) error {
	pods := filepath.Join(p.settings.Kubelet, "pods")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	all, err := nodeMounts()
	if err != nil {
		return err
	}
	r := &refusals{}
	for _, m := range mounts {
		if m.Type != "bind" {
			continue
		}
		kernels, err := ofKernel(m.Source)
		if err != nil {
			return fmt.Errorf("msb: the source of the mount at %s: %w", m.Target, err)
		}
		// As control groups of version 1 are, below a tmpfs. Of all others no file is looked at: one of another pod's, on a server that
		// doesn't answer any more, would keep this one waiting.
		for _, below := range all {
			if !kernels && strings.HasPrefix(below.at, strings.TrimSuffix(m.Source, "/")+"/") {
				kernels, _ = ofKernel(below.at) // one that can't be looked at was unmounted
			}
		}
		of := func(what string) string { return what + " at " + m.Target + " (" + m.Source + ")" }
		const another = "mount another directory"
		r.add(kernels, of("a file system of the node's kernel"), another)
		own := p.kubelet != "" && grants.Within(p.kubelet, m.Source)
		r.add(!own && overlap(m.Source, pods), of("the volumes of the node's pods"), another)
		r.add(overlap(m.Source, bundles), of("the bundles of the node's containers"), another)
		r.add(overlap(m.Source, p.settings.Records), of("the captures and audit logs of the node's pods"), another)
		for _, file := range []string{nodesettings.DefaultPath, p.settings.File, self, filepath.Join(filepath.Dir(self), "msb"), filepath.Join(filepath.Dir(self), "../lib/msb")} {
			r.add(!m.ReadOnly && changes(m.Source, file), of("msb's "+filepath.Base(file)+", writable,"), "mount it read-only")
		}
	}
	return r.err()
}

// ofKernel tells whether a path is, or lies below, such a file system: others are mounted in these, some not before they are looked
// into (autofs).
func ofKernel(path string) (bool, error) {
	for {
		var fs unix.Statfs_t
		if err := unix.Statfs(path, &fs); err != nil || slices.Contains(kernelFiles, fs.Type) {
			return err == nil, err
		}
		up := filepath.Dir(path)
		if up == path {
			return false, nil
		}
		path = up
	}
}

// changes tells whether who writes to a directory or file of the node decides what another one is, or what is in it.
func changes(source, file string) bool {
	decides := func(at string) bool { return grants.Within(source, at) }
	return file != "" && (slices.ContainsFunc(grants.Way(file), decides) || grants.Within(realPath(file), source))
}

func overlap(a, b string) bool { b = realPath(b); return grants.Within(a, b) || grants.Within(b, a) }

func realPath(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return filepath.Clean(name)
}
