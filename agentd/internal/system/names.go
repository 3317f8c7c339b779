//go:build linux

package system

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// HostEntry is a line of /etc/hosts.
type HostEntry struct {
	Address netip.Addr
	Names   []string
}

// Names is what the guest is called and whom it asks for names.
type Names struct {
	Hostname  string
	Addresses []netip.Prefix
	DNS       []netip.Addr
	Hosts     []HostEntry
	// Resolver says whether resolv.conf is written: not without a network.
	Resolver bool
}

// SetHostname names the machine.
func (n Names) SetHostname() error {
	if n.Hostname == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return nil
}

// Write writes the files under etc. It must run in the workload's root.
func (n Names) Write(etc string) error {
	if err := os.MkdirAll(etc, 0o755); err != nil { //nolint:gosec // /etc is for everybody
		return fmt.Errorf("make /etc: %w", err)
	}
	files := map[string]string{"hosts": n.hosts()}
	if n.Hostname != "" {
		files["hostname"] = n.Hostname + "\n"
	}
	if n.Resolver {
		files["resolv.conf"] = n.resolvConf()
	}
	for name, text := range files {
		if err := replaceFile(etc+"/"+name, text); err != nil {
			return fmt.Errorf("write /etc/%s: %w", name, err)
		}
	}
	return nil
}

func (n Names) hosts() string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if n.Hostname != "" {
		addrs := n.Addresses
		if len(addrs) == 0 {
			addrs = []netip.Prefix{netip.MustParsePrefix("127.0.1.1/8")} // Debian's habit for a host without a network
		}
		for _, p := range addrs {
			fmt.Fprintf(&b, "%s\t%s\n", p.Addr(), n.Hostname)
		}
	}
	for _, h := range n.Hosts {
		fmt.Fprintf(&b, "%s\t%s\n", h.Address, strings.Join(h.Names, " "))
	}
	return b.String()
}

// resolvConf has no search domain: a name means the same in every guest.
func (n Names) resolvConf() string {
	var b strings.Builder
	for _, a := range n.DNS {
		fmt.Fprintf(&b, "nameserver %s\n", a)
	}
	b.WriteString("options edns0 timeout:5 attempts:2\n")
	return b.String()
}

// replaceFile puts a new file in place of whatever has that name: images ship
// resolv.conf as a link to a service that does not run here.
func replaceFile(path, text string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // public files of /etc
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
