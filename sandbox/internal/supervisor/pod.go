package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/sandbox/internal/state"
)

var errPod = errors.New("the pod's network can't be used")

// podInterface is what CNI's runtimes call a pod's first interface.
const podInterface = "eth0"

// podGateway4 is the gateway that a pod's guest sees. It is link-local, since no pod, Service or node of a cluster has such an
// address, and not Calico's 169.254.1.1 or a metadata service's.
var podGateway4 = netip.AddrFrom4([4]byte{169, 254, 127, 1})

// podNetwork is what the network namespace of a pod holds. Its methods may be called on nil, for a sandbox that is no pod.
type podNetwork struct {
	*state.Pod
	four, six netip.Addr // of podInterface; invalid for none
	gateways  []netip.Addr
}

// readPod reads the network that CNI made for the pod.
func readPod(s *supervisor) error {
	if s.plan.Pod == nil {
		return nil
	}
	inode, err := ownNetwork()
	if err != nil {
		return fmt.Errorf("%w: %w", errPod, err)
	}
	if inode != s.plan.Pod.Namespace {
		return fmt.Errorf("%w: the sandbox is in the network namespace %d, and the pod's is %d", errPod, inode, s.plan.Pod.Namespace)
	}
	own := *s.plan.Pod
	p := &podNetwork{Pod: &own}
	if err := p.keepResolvConf(s.plan.Dir); err != nil {
		return fmt.Errorf("%w: its resolvers: %w", errPod, err)
	}
	if p.gateways, err = routeGateways(); err != nil {
		return fmt.Errorf("%w: its routes: %w", errPod, err)
	}
	s.pod = p
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("%w: its interfaces: %w", errPod, err)
	}
	for _, i := range all { // without that one, CNI didn't make the namespace: the guest has the addresses of any sandbox
		if i.Name != podInterface {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return fmt.Errorf("%w: %s: %w", errPod, podInterface, err)
		}
		p.choose(addrs)
	}
	return nil
}

// maxResolvConf bounds a pod's resolv.conf, in bytes.
const maxResolvConf = 64 << 10

// keepResolvConf has the pod's resolv.conf followed in a copy, in a directory of this process's own. The file itself is mounted in
// the pod's containers, writable unless their roots are read-only: a guest that changed it would choose who answers its questions
// (invariant 6). No container is there yet.
func (p *podNetwork) keepResolvConf(dir string) error {
	if p.ResolvConf == "" {
		return nil
	}
	f, err := os.Open(p.ResolvConf)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was read only
	content, err := io.ReadAll(io.LimitReader(f, maxResolvConf))
	if err != nil {
		return err
	}
	p.ResolvConf = filepath.Join(dir, state.PodResolvConf)
	return os.WriteFile(p.ResolvConf, p.onlyNameservers(content), 0o600)
}

// onlyNameservers leaves those out that the operator doesn't name: whoever writes a pod writes its resolv.conf, too (dnsConfig).
func (p *podNetwork) onlyNameservers(content []byte) []byte {
	if p.Nameservers == nil {
		return content
	}
	var kept []byte
	for line := range bytes.Lines(content) {
		f := bytes.Fields(line)
		if len(f) > 1 && string(f[0]) == "nameserver" {
			if a, err := netip.ParseAddr(string(f[1])); err != nil || !slices.Contains(p.Nameservers, a) {
				continue
			}
		}
		kept = append(kept, line...)
	}
	return kept
}

// choose takes the first address of each family, as Kubernetes does.
func (p *podNetwork) choose(addrs []net.Addr) {
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		addr := prefix.Addr()
		switch {
		case err != nil || !addr.IsGlobalUnicast():
		case addr.Is4() && !p.four.IsValid():
			p.four = addr
		case addr.Is6() && !p.six.IsValid():
			p.six = addr
		}
	}
}

// ofCNI reports whether the pod has addresses of its own.
func (p *podNetwork) ofCNI() bool { return p.address4().IsValid() || p.address6().IsValid() }

func (p *podNetwork) address4() netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	return p.four
}

func (p *podNetwork) address6() netip.Addr {
	if p == nil {
		return netip.Addr{}
	}
	return p.six
}

// first is the guest's first address; the zero value for no pod.
func (p *podNetwork) first() netip.Addr {
	switch {
	case p == nil:
		return netip.Addr{}
	case p.ofCNI() && !p.four.IsValid():
		return p.six
	case p.ofCNI():
		return p.four
	}
	return frameguard.Default().Guest4
}

func (p *podNetwork) resolvConf() string {
	if p == nil {
		return ""
	}
	return p.ResolvConf
}

// node are addresses of this machine's outside of the pod. The next hops of its routes are the node's own with most
// plugins.
func (p *podNetwork) node() []netip.Addr {
	if p == nil {
		return nil
	}
	return slices.Concat(p.Node, p.gateways)
}

// link gives the guest the pod's addresses. It has no neighbours on its link: those of the pod's subnet are reached, and
// judged, as all others are.
func (p *podNetwork) link(l *netstack.Config) {
	if !p.ofCNI() {
		return
	}
	l.DHCP = false // no client of a pod's asks, and many don't know what to do with a prefix of one address
	l.Guest4, l.Gateway4, l.Prefix4 = p.four, podGateway4, podGateway4.BitLen()
	if !p.four.IsValid() {
		l.Guest4 = netip.AddrFrom4([4]byte{169, 254, 127, 2}) // which the guest isn't given
	}
	if p.six.IsValid() {
		l.Guest6, l.Gateway6, l.Prefix6 = p.six, netip.MustParseAddr("fd6d:7362::1"), p.six.BitLen()
	}
}
