package shim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"

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
	if err := checkAnnotations(spec.Annotations); err != nil {
		return cfg, err
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
	if network(spec) != "" {
		cfg.Pod = &sandbox.Pod{ResolvConf: resolvConf(spec), Nameservers: s.Nameservers}
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
	if netns == "" {
		if err := start(); err != nil {
			return nil, "", err
		}
		return vm{s}, s.ID(), nil
	}
	ns, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("the pod's network namespace %s: %w", netns, err)
	}
	defer func() { _ = unix.Close(ns) }()
	if err := podNetwork(cfg.Pod, ns); err != nil {
		return nil, "", err
	}
	if err := inNetwork(ns, start); err != nil {
		return nil, "", err
	}
	return vm{s}, s.ID(), nil
}

// podNetwork describes the network of a pod to its supervisor. It is never the node's own, where a guest's ports would be
// the node's.
func podNetwork(p *sandbox.Pod, ns int) error {
	var pods, own unix.Stat_t
	err := unix.Fstat(ns, &pods)
	if err == nil {
		err = unix.Stat("/proc/thread-self/ns/net", &own) // of this thread: inNetwork may have put the main one into a pod's
	}
	if err != nil {
		return err
	}
	if pods.Ino == own.Ino && pods.Dev == own.Dev {
		return refused("hostNetwork (the node's own network namespace) can't be honoured; a microVM shares none of the node's namespaces: leave it out")
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("the node's addresses: %w", err)
	}
	p.Namespace = pods.Ino
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if addr := prefix.Addr(); err == nil && !addr.IsLoopback() && !slices.Contains(p.Node, addr) {
			p.Node = append(p.Node, addr)
		}
	}
	return nil
}

// resolvConf is the node's file that becomes a pod's /etc/resolv.conf; "" if it has none.
func resolvConf(spec *specs.Spec) string {
	for _, m := range slices.Backward(spec.Mounts) { // the last one covers others
		if m.Destination == "/etc/resolv.conf" {
			return m.Source
		}
	}
	return ""
}

// inNetwork calls do with its thread in a network namespace, which processes that do starts inherit.
func inNetwork(ns int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, since it is in another namespace
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the pod's network namespace: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}
