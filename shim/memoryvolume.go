package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// emptyDirs is the directory of a pod's volumes of the kind emptyDir, in the kubelet's.
const emptyDirs = "volumes/kubernetes.io~empty-dir"

// inMemory makes of a mount of the pod's emptyDir in memory, for which the kubelet has mounted a tmpfs, one in the guest's memory,
// which all containers of the pod share: programs look for a tmpfs, map what is in it, and have it on their own account. Size, mode
// and owner are those of the kubelet's.
func (p *pod) inMemory(m *sandbox.ContainerMount) error {
	rest, within := strings.CutPrefix(m.Source, realPath(p.kubelet)+"/")
	if m.Type != "bind" || p.kubelet == "" || !within {
		return nil
	}
	name, below, _ := strings.Cut(strings.TrimPrefix(rest, emptyDirs+"/"), "/")
	if parts := strings.Split(rest, "/"); parts[0] == "volume-subpaths" && len(parts) == 4 { // VOLUME/CONTAINER/NUMBER
		name = parts[1]
	} else if !strings.HasPrefix(rest, emptyDirs+"/") || below != "" {
		return nil
	}
	volume := filepath.Join(realPath(p.kubelet), emptyDirs, name)
	var fs unix.Statfs_t
	var of, at unix.Stat_t
	if err := errors.Join(unix.Statfs(volume, &fs), unix.Stat(volume, &of), unix.Stat(m.Source, &at)); errors.Is(err, unix.ENOENT) {
		return nil // which the directory server says better
	} else if err != nil {
		return err
	}
	if fs.Type != unix.TMPFS_MAGIC || of.Dev != at.Dev {
		return nil
	}
	root, err := mountRootOf(volume)
	if err != nil || root != "/" { // the kubelet's own directory is on a tmpfs
		return err
	}
	sub, err := mountRootOf(m.Source)
	if err != nil {
		return err
	}
	m.Type, m.Source, m.Shared, m.SubPath = "tmpfs", "", name, strings.Trim(sub, "/")
	m.SizeBytes, m.Mode, m.UID, m.GID = int64(fs.Blocks)*fs.Bsize, of.Mode&0o7777, of.Uid, of.Gid
	return nil
}

// mountRootOf is the path in a file system of what is mounted at a place of the node; "" if nothing is.
func mountRootOf(place string) (root string, err error) {
	mounts, err := nodeMounts()
	for _, m := range mounts { // the last one covers others
		if m.at == place {
			root = m.root
		}
	}
	return root, err
}

// nodeMount is a mount of the node's: what of a file system is mounted where.
type nodeMount struct{ root, at string }

func nodeMounts() (all []nodeMount, err error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("the node's mounts: %w", err)
	}
	for line := range strings.Lines(string(b)) { // proc_pid_mountinfo(5)
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, nodeMount{unescapeMount(f[3]), unescapeMount(f[4])})
		}
	}
	return all, nil
}

// unescapeMount undoes what the kernel does to white space and backslashes in paths.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
