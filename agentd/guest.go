//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/truststore"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// guest is the real machine behind the server.
type guest struct {
	thread  *workload.Thread
	cgroups *workload.Cgroups // nil where the kernel has none
	devices system.Devices
	log     *slog.Logger

	// Of the handshake that configured the machine, for one that goes on.
	hostname, bundle string
}

var _ machineOps = (*guest)(nil)

// Configure implements machineOps. Clock and randomness come first: whatever
// runs later may make keys or look at certificates.
func (g *guest) Configure(ctx context.Context, req *agentpb.HandshakeRequest) (env, warnings []string, err error) {
	warn := func(err error) {
		if err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	if ns := req.GetClockUnixNs(); ns != 0 {
		_, err := system.SetClock(time.Unix(0, ns))
		warn(err)
	}
	seeded := system.Seed(req.GetEntropy())
	warn(seeded)
	if req.GetResumed() {
		return g.goOn(req, seeded)
	}
	if req.GetRestored() {
		if err := g.renew(req, seeded); err != nil {
			return nil, nil, fmt.Errorf("this machine is a copy of a saved one: %w", err)
		}
	}
	network, names, err := parseNetwork(req)
	if err != nil {
		return nil, nil, err
	}
	warn(names.SetHostname())
	if network != nil {
		if err := network.Apply(&g.devices); err != nil {
			return nil, nil, err
		}
	}
	root := parseRoot(req.GetRoot())
	if req.GetRoot() != nil {
		if err := root.Assemble(ctx); err != nil {
			return nil, nil, err
		}
		volumes, err := system.OpenVolumes(ctx, root.Volumes, warn)
		if err != nil {
			return nil, nil, err
		}
		caches := system.OpenCaches(ctx, root.Caches, root.CacheDisk, warn)
		g.thread.Do(func() {
			if err = system.Enter(); err == nil {
				err = errors.Join(root.MountTmpfs(), volumes.Mount())
			}
			attachCaches(caches, root.CacheUser, warn)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if g.thread.Do(func() { err = forgetOthers(req) }); err != nil {
		return nil, nil, err
	}
	g.thread.Do(func() {
		warn(names.Write("/etc"))
		g.bundle, err = truststore.Install("/", req.GetTrust().GetCaPem())
	})
	warn(err)
	if req.GetRoot() != nil {
		if g.thread.Do(func() { err = root.Seal() }); err != nil {
			return nil, nil, err
		}
	}
	g.hostname = names.Hostname
	for _, w := range warnings {
		g.log.Warn(w)
	}
	return g.environment(req), warnings, nil
}

// environment are the defaults of every process.
func (g *guest) environment(req *agentpb.HandshakeRequest) []string {
	env := req.GetEnv()
	if req.GetTrust().GetSetEnv() {
		env = workload.MergeEnv(truststore.Env(g.bundle), env)
	}
	if g.hostname != "" {
		env = workload.MergeEnv([]string{"HOSTNAME=" + g.hostname}, env)
	}
	return env
}

// goOn is Configure for a machine that was saved after it was configured. What its kernel draws from here on must not be
// what the machine drew that went on when it was saved.
func (g *guest) goOn(req *agentpb.HandshakeRequest, seeded error) (env, warnings []string, err error) {
	if seeded == nil && len(req.GetEntropy()) == 0 {
		seeded = errNoEntropy
	}
	if seeded != nil {
		return nil, nil, fmt.Errorf("this machine was saved: %w", seeded)
	}
	return g.environment(req), nil, nil
}

var errNoEntropy = errors.New("it got no randomness of its own")

// attachCaches mounts caches in the home of that user. The calling thread has entered the root. A sandbox is of use
// without them: what can't be done is a warning.
func attachCaches(caches *system.Caches, user string, warn func(error)) {
	if caches.Empty() {
		return
	}
	owner, err := workload.LookupOwner(user)
	if err != nil {
		warn(fmt.Errorf("the caches are not there: %w", err))
		caches.Close()
		return
	}
	caches.Mount(owner.Home, int(owner.UID), int(owner.GID), warn)
}

// renew makes a copy of a saved machine one of its own.
func (g *guest) renew(req *agentpb.HandshakeRequest, seeded error) error {
	if seeded == nil && len(req.GetEntropy()) == 0 {
		seeded = errNoEntropy
	}
	if seeded != nil {
		return seeded
	}
	mac := net.HardwareAddr(req.GetNetwork().GetMac())
	if len(mac) != 6 {
		mac = make(net.HardwareAddr, 6) // no card, only what the kernel made
	}
	return g.devices.RenewMACs(mac)
}

// forgetOthers makes the copy of another sandbox's disk one of its own, before
// anything runs from it. The calling thread has entered the root.
func forgetOthers(req *agentpb.HandshakeRequest) error {
	if err := truststore.Forget("/", req.GetTrust().GetForgetPem()); err != nil {
		return err
	}
	if !req.GetNewIdentity() {
		return nil
	}
	return system.RenewIdentity("/")
}

// SetClock implements machineOps.
func (*guest) SetClock(t time.Time) (time.Duration, error) { return system.SetClock(t) }

// Freeze implements machineOps.
func (*guest) Freeze() error { return system.FreezeUpper() }

// Thaw implements machineOps.
func (*guest) Thaw() error { return system.ThawUpper() }

// Upper implements machineOps.
func (*guest) Upper() (*os.Root, error) { return system.UpperFiles() }

// Terminate implements machineOps.
func (*guest) Terminate() { system.KillAll(unix.SIGTERM) }

// Stats implements machineOps.
func (*guest) Stats() *agentpb.StatsResponse {
	s := system.ReadStats()
	return &agentpb.StatsResponse{
		MemoryTotalBytes: s.MemoryTotal, MemoryAvailableBytes: s.MemoryAvailable,
		UptimeNs: int64(s.Uptime), CpuBusyNs: int64(s.CPUBusy),
		Processes: uint32(max(s.Processes, 0)), OomKills: s.OOMKills,
		RootTotalBytes: s.RootTotal, RootAvailableBytes: s.RootAvailable,
	}
}

// Cgroup implements machineOps.
func (g *guest) Cgroup() *workload.Cgroup {
	if g.cgroups == nil {
		return nil
	}
	group, err := g.cgroups.New()
	if err != nil {
		g.log.Warn("no control group for an exec", "err", err)
		return nil
	}
	return group
}

// Kernel implements machineOps.
func (*guest) Kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func parseRoot(r *agentpb.Root) system.Root {
	disk := func(d *agentpb.Disk) system.Disk {
		return system.Disk{Serial: d.GetSerial(), Device: d.GetDevice()}
	}
	root := system.Root{Image: disk(r.GetImage()), UpperBytes: r.GetUpperMemoryBytes(), MakeDirs: r.GetMakeDirs(), ReadOnly: r.GetReadOnly()}
	for _, t := range r.GetTmpfs() {
		root.Tmpfs = append(root.Tmpfs, system.Tmpfs{Path: t.GetPath(), Size: t.GetSizeBytes(), Mode: t.Mode, Exec: t.GetExec()})
	}
	for _, v := range r.GetVolumes() {
		root.Volumes = append(root.Volumes, system.Volume{Disk: disk(v.GetDisk()), Path: v.GetPath(), ReadOnly: v.GetReadOnly()})
	}
	for _, c := range r.GetCaches() {
		root.Caches = append(root.Caches, system.Cache{Key: c.GetKey(), Path: c.GetPath()})
	}
	root.CacheUser = r.GetCacheUser()
	if d := r.GetCacheDisk(); d != nil {
		shared := disk(d)
		root.CacheDisk = &shared
	}
	if u := r.GetUpperDisk(); u != nil {
		upper := disk(u)
		root.Upper = &upper
	}
	return root
}

// parseNetwork checks every address before anything is configured.
func parseNetwork(req *agentpb.HandshakeRequest) (*system.Network, system.Names, error) {
	names := system.Names{Hostname: req.GetHostname()}
	n := req.GetNetwork()
	if n == nil {
		return nil, names, nil
	}
	network := &system.Network{MAC: net.HardwareAddr(n.GetMac()), MTU: int(n.GetMtu())}
	if len(network.MAC) != 6 {
		return nil, names, errors.New("the handshake's MAC address is not 6 bytes long")
	}
	for _, s := range n.GetAddresses() {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, names, fmt.Errorf("the handshake's address: %w", err)
		}
		network.Addresses = append(network.Addresses, p)
	}
	names.Addresses, names.Resolver = network.Addresses, true
	var err error
	if network.Gateways, err = parseAddrs(n.GetGateways()); err != nil {
		return nil, names, err
	}
	if names.DNS, err = parseAddrs(n.GetDnsServers()); err != nil {
		return nil, names, err
	}
	for _, h := range n.GetHosts() {
		a, err := netip.ParseAddr(h.GetAddress())
		if err != nil {
			return nil, names, fmt.Errorf("the handshake's hosts: %w", err)
		}
		names.Hosts = append(names.Hosts, system.HostEntry{Address: a, Names: h.GetNames()})
	}
	return network, names, nil
}

func parseAddrs(list []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("the handshake's address: %w", err)
		}
		out = append(out, a)
	}
	return out, nil
}
