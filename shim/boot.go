package shim

import (
	"context"
	"fmt"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// bootFunc boots the machine that a pod's first container asks for. Tests have another one than boot.
type bootFunc func(ctx context.Context, cfg sandbox.Config, netns string) (machine, string, error)

// machineConfig says what machine a pod gets. id is its first container's.
func machineConfig(id string, spec *specs.Spec, s *settings) (cfg sandbox.Config, err error) {
	cfg = sandbox.Config{
		Home: s.Home, Backend: s.Backend, Hostname: spec.Hostname, Containers: true,
		// Copies of a saved machine share its memory, all of which is on the account of the first pod that touches it.
		Cold: true,
	}
	if cfg.AuditLabels, err = auditLabels(id, spec.Annotations, s); err != nil {
		return cfg, err
	}
	if err := machineSize(&cfg, s, spec); err != nil {
		return cfg, err
	}
	if err := nodePolicy(&cfg, s, spec.Annotations); err != nil {
		return cfg, err
	}
	return cfg, records(&cfg, s, id, spec.Annotations)
}

// boot boots a machine, whose supervisor, and so every connection that leaves it, is in a network namespace: the pod's. It
// returns the machine's id, too.
func boot(ctx context.Context, cfg sandbox.Config, netns string) (machine, string, error) {
	var s *sandbox.Sandbox
	start := func() (err error) {
		s, err = sandbox.Start(ctx, cfg)
		return err
	}
	if err := inNetwork(netns, start); err != nil {
		return nil, "", err
	}
	return vm{s}, s.ID(), nil
}

// inNetwork calls do with its thread in a network namespace, which processes that do starts inherit.
func inNetwork(path string, do func() error) error {
	if path == "" {
		return do()
	}
	ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the pod's network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(ns) }()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, since it is in another namespace
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the pod's network namespace %s: %w", path, err)
			return
		}
		done <- do()
	}()
	return <-done
}
