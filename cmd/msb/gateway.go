package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// gatewayFlags is the command line of `msb gateway`.
type gatewayFlags struct {
	policy, floor, listen, link, mac, caOut, audit, learn, name string
	mtu                                                         int
	keep, trust, offload                                        bool
	pcap                                                        pcapFlags
}

// readyLine is what `msb gateway` prints, on one line, when a VMM may connect.
type readyLine struct {
	Listen      string `json:"listen"`
	Link        string `json:"link"`
	GuestIPv4   string `json:"guest_ipv4"`
	GatewayIPv4 string `json:"gateway_ipv4"`
	PrefixIPv4  int    `json:"prefix_ipv4"`
	GuestIPv6   string `json:"guest_ipv6"`
	GatewayIPv6 string `json:"gateway_ipv6"`
	PrefixIPv6  int    `json:"prefix_ipv6"`
	// GuestMAC is missing without --mac: the first source address on the link is leased then.
	GuestMAC   string `json:"guest_mac,omitempty"`
	GatewayMAC string `json:"gateway_mac"`
	MTU        int    `json:"mtu"`
	// CA is the path given with --ca-out.
	CA string `json:"ca,omitempty"`
	// Placeholders gives each secret's placeholder by name: what to put into the guest.
	Placeholders map[string]string `json:"placeholders,omitempty"`
}

func newGatewayCommand(ui *ui) *cobra.Command {
	var f gatewayFlags
	c := &cobra.Command{
		Use:   "gateway --policy FILE --listen unix://PATH|fd:N",
		Short: "The gateway alone, for any VMM: a policy-enforcing replacement for gvproxy",
		Long: `Puts the gateway on a link that some other VMM connects to. When it is ready it
prints one line of JSON with the addresses of both ends, the MTU and each
secret's placeholder. It serves DHCP, and ends when its link ends; a datagram
link has no end, so there it runs until it is told to stop.`,
		Example: `  msb gateway --policy policy.toml --listen unix:///tmp/net.sock --ca-out ca.pem &
  qemu-system-x86_64 … -netdev stream,id=n,addr.type=unix,addr.path=/tmp/net.sock -device virtio-net-pci,netdev=n`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return runGateway(c.Context(), ui, &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "", "policy `file`; read again when it changes, and on SIGHUP")
	fl.StringVar(&f.floor, "floor", "", "an operator's policy `file`, which --policy can't loosen")
	trustFlag(fl, &f.trust)
	fl.StringVar(&f.listen, "listen", "", "`unix://PATH`, or fd:N for an inherited socket")
	fl.StringVar(&f.link, "link", "qemu", "framing: qemu (stream, also libkrun) or vfkit (datagrams, also gvproxy's)")
	fl.StringVar(&f.mac, "mac", "", "the guest's `address`; default: the first one seen")
	fl.IntVar(&f.mtu, "mtu", 1500, "MTU of the link in bytes")
	fl.BoolVar(&f.offload, "offload", false, "take frames whose checksums the guest leaves to its network card")
	fl.StringVar(&f.caOut, "ca-out", "", "write the certificate that the guest must trust to this `file`")
	fl.StringVar(&f.audit, "audit", "", "write every verdict to this `file`, a JSON object a line")
	f.pcap.register(fl)
	fl.StringVar(&f.learn, "learn", "", "write the smallest policy that allows what was seen to this `file`, at the end")
	fl.StringVar(&f.name, "name", "gateway", "the sandbox's `name` in the audit")
	fl.BoolVar(&f.keep, "keep", false, "when the link ends, wait for the next one")
	required(c, "policy", "listen")
	return c
}

func runGateway(ctx context.Context, ui *ui, f *gatewayFlags) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := sandbox.GuardMemory(); err != nil {
		return err
	}
	pcap, err := f.pcap.options()
	if err != nil {
		return &usageError{err: err, help: "msb gateway --help"}
	}
	err = apart([]namedFile{
		{"--ca-out", f.caOut, true}, {"--audit", f.audit, true}, {"--pcap", f.pcap.path, true}, {"--learn", f.learn, true},
		{"--policy", f.policy, false}, {"--floor", f.floor, false},
	}, "msb gateway --help")
	if err != nil {
		return err
	}
	p, err := sandbox.LoadPolicy(f.policy)
	if err != nil {
		return err
	}
	var floor *policies.Policy
	if f.floor != "" {
		if floor, err = sandbox.LoadPolicy(f.floor); err != nil {
			return err
		}
	}
	var admitted *sandbox.Admission
	err = approved(ctx, ui, func() (err error) {
		admitted, err = sandbox.Admit(p, sandbox.AdmitOptions{Floor: floor, Trust: f.trust})
		return err
	})
	if err != nil {
		return startError(ctx, err)
	}
	p = admitted.Policy
	cfg := netstack.Config{DHCP: true, RouterAdvertisements: true, MTU: f.mtu, PartialChecksums: f.offload}
	if f.mac != "" {
		if cfg.GuestMAC, err = net.ParseMAC(f.mac); err != nil {
			return &usageError{err: fmt.Errorf("--mac: %w", err), help: "msb gateway --help"}
		}
	}
	rec, err := sandbox.OpenRecords(sandbox.RecordFiles{Audit: f.audit, Pcap: f.pcap.path, PcapOptions: pcap, Learn: f.learn})
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{ //nolint:contextcheck // it lives until Close, not until ctx ends
		Sandbox: f.name, Policy: p, Floor: floor, Audit: audit.Tee(rec.Sink(), gatewayNotes{ui}), Link: cfg, Capture: rec.Capture(),
		Admit:     admitted.Reload,
		Terminate: func(reason string) { ui.note("ended: %s", reason); stop() },
	})
	if err != nil {
		return errors.Join(err, rec.Close(p))
	}
	for _, w := range g.Warnings() {
		ui.note("%s", w)
	}
	off := onSwitch(func(on bool) { ui.switched(rec.SwitchCapture(on), on) })
	defer off()
	return errors.Join(serveGateway(ctx, ui, f, p, g), g.Close(), rec.Close(p))
}

// gatewayNotes prints whether a changed policy was accepted, and errors of a link, with or without --audit.
type gatewayNotes struct{ ui *ui }

var _ audit.Sink = gatewayNotes{}

// Emit implements audit.Sink.
func (n gatewayNotes) Emit(e audit.Event) {
	if e.Kind == audit.PolicyReload || e.Kind == audit.LinkDrop && e.Action == "" {
		n.ui.note("%s", e.Message)
	}
}

func serveGateway(ctx context.Context, ui *ui, f *gatewayFlags, p *policies.Policy, g *gateway.Gateway) error {
	links, err := openLinks(ctx, f.listen, f.link)
	if err != nil {
		return err
	}
	defer links.close()
	if f.caOut != "" {
		if err := os.WriteFile(f.caOut, g.CAPEM(), 0o644); err != nil { //nolint:gosec // a certificate is public
			return err
		}
	}
	if err := ui.jsonLine(ready(f, g)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var work errgroup.Group
	work.Go(func() error { g.WatchPolicy(ctx, f.policy, p, hup); return nil })
	work.Go(func() error {
		defer cancel()
		return links.serve(ctx, f.keep, g)
	})
	err = work.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func ready(f *gatewayFlags, g *gateway.Gateway) readyLine {
	l := g.Link()
	r := readyLine{
		Listen: f.listen, Link: f.link,
		GuestIPv4: l.Guest4.String(), GatewayIPv4: l.Gateway4.String(), PrefixIPv4: l.Prefix4,
		GuestIPv6: l.Guest6.String(), GatewayIPv6: l.Gateway6.String(), PrefixIPv6: l.Prefix6,
		GatewayMAC: l.GatewayMAC.String(), MTU: l.MTU, CA: f.caOut, Placeholders: g.Placeholders(),
	}
	if l.GuestMAC != nil {
		r.GuestMAC = l.GuestMAC.String()
	}
	return r
}
