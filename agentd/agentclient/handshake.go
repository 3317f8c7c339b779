package agentclient

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// entropyBytes is twice what the kernel's generator can hold.
const entropyBytes = 64

// maxWarnings bounds what of a guest's warnings is kept.
const maxWarnings = 32

func (c *Client) handshake(ctx context.Context, opts Options) error {
	req := opts.request()
	req.Entropy = make([]byte, entropyBytes)
	if _, err := rand.Read(req.Entropy); err != nil {
		return fmt.Errorf("read randomness for the guest: %w", err)
	}
	sent := time.Now()
	req.ClockUnixNs = sent.UnixNano()
	resp, err := c.api.Handshake(ctx, req)
	if err != nil {
		return c.callError(ctx, err)
	}
	if v := resp.GetVersion(); v < agentpb.MinVersion || v > agentpb.MaxVersion {
		return fmt.Errorf("%w: it chose %d, offered were %d to %d",
			ErrVersion, v, agentpb.MinVersion, agentpb.MaxVersion)
	}
	c.info = Info{
		Version:      resp.GetVersion(),
		AgentVersion: guestText(resp.GetAgentVersion()),
		Kernel:       guestText(resp.GetKernel()),
		// It set its clock to the moment at which this was sent, and has gone on from there.
		ClockBehind: time.Since(sent) - time.Duration(resp.GetClockUnixNs()-req.GetClockUnixNs()),
	}
	for i, w := range resp.GetWarnings() {
		if i == maxWarnings {
			break
		}
		c.info.Warnings = append(c.info.Warnings, guestText(w))
	}
	return nil
}

// request is the handshake without what belongs to the moment: clock, entropy.
func (o Options) request() *agentpb.HandshakeRequest {
	req := &agentpb.HandshakeRequest{
		MinVersion:  agentpb.MinVersion,
		MaxVersion:  agentpb.MaxVersion,
		Hostname:    o.Hostname,
		Env:         o.Env,
		Restored:    o.Restored,
		NewIdentity: o.NewIdentity,
		ResumeKey:   o.ResumeKey,
		Resumed:     o.Resumed,
		Trust:       &agentpb.Trust{CaPem: o.CAPEM, SetEnv: o.TrustEnv, ForgetPem: o.ForgetPEM},
	}
	if o.Network != nil {
		req.Network = o.Network.message()
	}
	if o.Root != nil {
		req.Root = o.Root.message()
	}
	return req
}

func (n *Network) message() *agentpb.Network {
	m := &agentpb.Network{Mac: n.MAC, Mtu: uint32(max(n.MTU, 0))}
	for _, p := range n.Addresses {
		m.Addresses = append(m.Addresses, p.String())
	}
	for _, a := range n.Gateways {
		m.Gateways = append(m.Gateways, a.String())
	}
	for _, a := range n.DNSServers {
		m.DnsServers = append(m.DnsServers, a.String())
	}
	for _, h := range n.Hosts {
		m.Hosts = append(m.Hosts, &agentpb.HostEntry{Address: h.Address.String(), Names: h.Names})
	}
	return m
}

func (d Disk) message() *agentpb.Disk { return &agentpb.Disk{Serial: d.Serial, Device: d.Device} }

func (r *Root) message() *agentpb.Root {
	m := &agentpb.Root{Image: r.Image.message(), MakeDirs: r.MakeDirs, ReadOnly: r.ReadOnly}
	for _, t := range r.Tmpfs {
		m.Tmpfs = append(m.Tmpfs, &agentpb.Tmpfs{Path: t.Path, SizeBytes: t.Size, Mode: t.Mode, Exec: t.Exec})
	}
	for _, v := range r.Volumes {
		m.Volumes = append(m.Volumes, &agentpb.Volume{Disk: v.Disk.message(), Path: v.Path, ReadOnly: v.ReadOnly})
	}
	for _, c := range r.Caches {
		m.Caches = append(m.Caches, &agentpb.Cache{Key: c.Key, Path: c.Path})
	}
	m.CacheUser = r.CacheUser
	if r.Transfer != (Disk{}) {
		m.Transfer = r.Transfer.message()
	}
	if r.CacheDisk != (Disk{}) {
		m.CacheDisk = r.CacheDisk.message()
	}
	if r.UpperDisk != (Disk{}) {
		m.Upper = &agentpb.Root_UpperDisk{UpperDisk: r.UpperDisk.message()}
		return m
	}
	m.Upper = &agentpb.Root_UpperMemoryBytes{UpperMemoryBytes: r.UpperMemoryBytes}
	return m
}
