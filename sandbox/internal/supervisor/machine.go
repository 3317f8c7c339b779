package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/secretstore"
)

// The serials by which the agent finds its disks.
const (
	serialAgent = "agentd"
	serialImage = "image"
	serialUpper = "upper"

	serialCaches = "caches"

	serialTransfer = "transfer"
)

func (s *supervisor) startMachine() error {
	spec := vm.Spec{
		CPUs: s.plan.CPUs, MemoryMiB: int(s.plan.Memory >> 20),
		Disks: []vm.Disk{
			{Path: s.plan.AgentDisk, ReadOnly: true, ID: serialAgent},
			{Path: s.plan.ImageDisk, ReadOnly: true, ID: serialImage},
		},
		ConsoleLog: filepath.Join(s.plan.Dir, state.ConsoleLog),
	}
	if s.plan.UpperDisk != "" {
		spec.Disks = append(spec.Disks, vm.Disk{Path: s.plan.UpperDisk, ID: serialUpper})
	}
	own := len(spec.Disks)
	if s.plan.UpperDisk != "" { // until the machine is recorded, nothing else tells the next run of it
		lock, err := state.LockDisk(s.plan.UpperDisk, time.Second)
		if err == nil {
			spec.Held = append(spec.Held, lock)
		} else if !errors.Is(err, fs.ErrNotExist) { // which the backend says of it
			return err
		}
	}
	if err := attachVolumes(s.plan, &spec); err != nil {
		return err
	}
	if err := s.attachCaches(&spec); err != nil {
		return err
	}
	spec.CallersGroup = s.plan.Containers              // whoever adds them accounts for them by it
	spec.Warm = !s.plan.Cold && len(spec.Disks) == own // other disks would need a saved machine for each set of their sizes
	if err := s.transfer.attach(s, &spec); err != nil {
		return errors.Join(err, closeFiles(spec.Held))
	}
	var link netstack.Link
	if !s.plan.NoNet {
		conn, file, err := state.SocketPair()
		if err != nil {
			return errors.Join(err, closeFiles(spec.Held))
		}
		link = netstack.NewStreamLink(conn)
		spec.Net = &vm.Net{FD: file, MAC: guestMAC()}
	}
	s.memory.prepare(&spec)
	machine, err := s.backend.Start(s.ctx, spec)
	err = s.memory.begun(err)
	if err != nil {
		if link != nil {
			err = errors.Join(err, link.Close())
		}
		return err
	}
	s.machine, s.link = machine, link
	err = s.named.recordRun(func(r *state.RunRecord) {
		*r = state.RunRecord{Started: s.started, Supervisor: state.Identify(os.Getpid()), VMM: state.Identify(machine.PID()), AutoRemove: s.plan.AutoRemove}
	})
	if err != nil {
		return err
	}
	if spec.Net != nil {
		s.mac = spec.Net.MAC
	}
	return nil
}

// guestMAC is random and locally administered (IEEE 802), so that it tells nothing of the host.
func guestMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac) // crypto/rand never fails
	mac[0] = mac[0]&^1 | 2
	return mac
}

// serveLink builds the gateway, which reads the secrets, and puts it on the guest's link. The guest
// boots meanwhile; its first frames wait in the socket.
func (s *supervisor) serveLink() error {
	if s.plan.NoNet {
		return nil
	}
	cfg := netstack.Config{GuestMAC: s.mac, DHCP: true, MTU: netstack.LargeMTU} // the card of every backend takes it
	s.pod.link(&cfg)
	if err := s.access.settleOffline(); err != nil {
		return errors.Join(err, s.link.Close())
	}
	authority, stored, err := s.named.identity()
	if err != nil {
		return errors.Join(err, s.link.Close())
	}
	s.access.begin(stored)
	g, err := gateway.New(gateway.Config{
		Granted: stored.Granted(), Use: s.access.use,
		CA: authority, Placeholders: stored.Placeholders, Parents: stored.ParentPlaceholders,
		Sandbox: s.plan.ID, Policy: s.policy, Floor: s.floor, Audit: reloads{audit.Tee(s.records.Sink(), &s.denials), s}, Link: cfg, Node: s.pod.node(), Pod: s.pod.first(), ResolvConf: s.pod.resolvConf(), Capture: s.records.Capture(),
		Admit:   admitReload(s.plan),
		Forward: s.ports.forward, Dialer: s.dialer, DialSandbox: s.peers.dial,
		Terminate:  func(reason string) { s.cancel(fmt.Errorf("%w: %s", state.ErrTerminated, reason)) },
		EgressUsed: s.restart.egressUsed(),
	})
	if errors.Is(err, secretstore.ErrValue) {
		err = fmt.Errorf("%w: %w", state.ErrSecretValue, err)
	}
	if err != nil {
		return errors.Join(err, s.link.Close())
	}
	s.gateway = g
	s.work.Go(func() { _ = g.Serve(s.ctx, s.link) }) // it ends with the machine, whose end is what counts
	s.ports.serveAll()
	s.peers.serve()
	if s.plan.Name != "" {
		s.work.Go(s.access.watch)
	}
	if s.plan.PolicyFile != "" {
		s.work.Go(func() { g.WatchPolicy(s.ctx, s.plan.PolicyFile, s.policy, nil) })
	}
	return nil
}

// admitReload judges later versions of the policy file. One that another file has become by a link is refused: who
// writes to a directory on the way, such as the guest of another sandbox that shares it, would choose the policy.
func admitReload(plan *state.Plan) func(*policies.Policy) (*policies.Policy, error) {
	start := grants.Way(plan.PolicyFile)
	return func(p *policies.Policy) (*policies.Policy, error) {
		if now := grants.Way(p.Path); !slices.Equal(now, start) {
			return nil, fmt.Errorf("%s leads to another file (%s) than when the sandbox started; look at it, then start the sandbox again", p.Path, now[len(now)-1])
		}
		return grants.Reload(p, plan.Grants, grants.Options{State: plan.Home})
	}
}

// greetAgent waits for the guest to be ready and configures it.
func (s *supervisor) greetAgent() error {
	ctx, cancel := context.WithTimeout(s.ctx, state.BootTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.machine.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	opts := agentclient.Options{
		HandshakeTimeout: state.BootTimeout,
		Restored:         s.machine.Restored(),
		Hostname:         s.plan.Hostname,
		Root:             rootOf(s.plan),
		Env:              s.environment(),
	}
	if s.plan.UpperDisk != "" {
		opts.Root.UpperDisk = agentclient.Disk{Serial: serialUpper, Device: "vdc"}
	}
	opts.Root.Transfer = s.transfer.guest
	if err := s.addCaches(opts.Root); err != nil {
		return err
	}
	if s.gateway != nil {
		opts.Network, opts.CAPEM, opts.TrustEnv = networkOf(s.gateway.Link(), s.mac, s.pod), s.gateway.CAPEM(), true
	}
	if err := asCopy(s.plan, &opts); err != nil {
		return err
	}
	conn, err := s.memory.join(ctx, &opts)
	if err != nil {
		return fmt.Errorf("the guest did not go on: %w", err)
	}
	agent, err := agentclient.Dial(ctx, conn, opts)
	if err != nil {
		return fmt.Errorf("the guest did not become ready: %w", err)
	}
	s.agent = agent
	s.greeted.Store(agent)
	if !exact(agent.Info().ClockBehind) { // the handshake waited in the port while the guest booted
		newGuestClock(agent).look(ctx)
	}
	return nil
}

// asCopy tells the guest what is new if its disk was another sandbox's.
func asCopy(plan *state.Plan, opts *agentclient.Options) error {
	if plan.Name == "" {
		opts.ForgetPEM = []byte(plan.ForgetCA)
		return nil
	}
	st, err := state.ReadStored(plan.Dir, plan.Name)
	if err != nil {
		return err
	}
	opts.NewIdentity, opts.ForgetPEM = st.NewIdentity, []byte(st.ForgetCA)
	return nil
}

func rootOf(plan *state.Plan) *agentclient.Root {
	r := &agentclient.Root{Image: agentclient.Disk{Serial: serialImage, Device: "vdb"}, ReadOnly: plan.ReadOnly}
	for _, t := range plan.Tmpfs {
		r.Tmpfs = append(r.Tmpfs, agentclient.Tmpfs(t))
	}
	r.Volumes = volumesOf(plan)
	if !plan.ReadOnly {
		return r
	}
	// A read-only root needs the directories that are otherwise made when they
	// are used.
	if plan.Children {
		r.MakeDirs = append(r.MakeDirs, agentpb.ChildDir)
	}
	for _, d := range plan.Directories {
		r.MakeDirs = append(r.MakeDirs, d.Guest)
	}
	if path.IsAbs(plan.Image.WorkingDir) {
		r.MakeDirs = append(r.MakeDirs, plan.Image.WorkingDir)
	}
	return r
}

// networkOf is the link as the guest sets it up. A pod has no addresses but its own.
func networkOf(l netstack.Config, mac net.HardwareAddr, pod *podNetwork) *agentclient.Network {
	n := &agentclient.Network{MAC: mac, MTU: l.MTU}
	for _, f := range []struct {
		own, guest, gateway netip.Addr
		bits                int
	}{
		{pod.address4(), l.Guest4, l.Gateway4, l.Prefix4}, {pod.address6(), l.Guest6, l.Gateway6, l.Prefix6},
	} {
		if pod.ofCNI() && !f.own.IsValid() {
			continue
		}
		n.Addresses, n.Gateways = append(n.Addresses, netip.PrefixFrom(f.guest, f.bits)), append(n.Gateways, f.gateway)
	}
	n.DNSServers = n.Gateways[:1]
	return n
}
