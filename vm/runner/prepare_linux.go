package runner

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/vm"
)

// NewLaunch makes what every backend needs out of a validated Spec: the two
// channels, as FirstFileFD (agent) and FirstFileFD+1 (console), and the grants
// for the disks. The disks' paths in the Spec become real paths.
func NewLaunch(self []string, spec *vm.Spec) (*Launch, error) {
	l := &Launch{Self: self, ConsoleLog: spec.ConsoleLog}
	spec.Disks = append([]vm.Disk(nil), spec.Disks...)
	for i := range spec.Disks {
		d := &spec.Disks[i]
		real, err := clean(d.Path)
		if err != nil {
			return nil, err
		}
		d.Path = real
		if d.ReadOnly {
			l.Plan.ReadOnly = append(l.Plan.ReadOnly, real)
		} else {
			l.Plan.ReadWrite = append(l.Plan.ReadWrite, real)
		}
	}
	l.Plan.Devices = []string{"/dev/null", "/dev/urandom"}
	agent, agentFD, err := StreamPair("agent")
	if err != nil {
		return nil, err
	}
	console, consoleFD, err := StreamPair("console")
	if err != nil {
		return nil, errors.Join(err, agent.Close(), agentFD.Close())
	}
	l.Agent, l.Console, l.Files = agent, console, []*os.File{agentFD, consoleFD}
	return l, nil
}

// SystemLibraries are the folders that a dynamically linked program loads its
// libraries from. A prefix other than the system's own (/opt/qemu) adds its
// library folders; "" adds none.
func SystemLibraries(prefix string) []string {
	dirs := []string{ //nolint:prealloc // a list of constants, and now and then two more
		"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
		"/usr/local/lib", "/usr/local/lib64",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/nix/store",
	}
	switch prefix {
	case "", "/", "/usr", "/usr/local":
		return dirs
	}
	return append(dirs, filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"))
}
