package upstream

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// resolvConfPath is where the system names its resolvers (resolv.conf(5)).
const resolvConfPath = "/etc/resolv.conf"

// maxResolvConf bounds what is read of it.
const maxResolvConf = 64 << 10

// systemConf follows resolv.conf: a laptop that changes networks changes its
// resolvers. It looks at the file when it is asked, at most once in
// resolvConfAge, and reads it when it changed.
type systemConf struct {
	clock func() time.Duration
	path  string
	dial  DialFunc

	mu      sync.Mutex
	looked  time.Duration // -1 before the first look
	modTime time.Time
	size    int64
	list    []*backingOff
}

func newSystemConf(opts Options) *systemConf {
	return &systemConf{clock: opts.Clock, path: opts.ResolvConf, dial: opts.Dial, looked: -1}
}

// servers returns the resolvers in force. Those that stay keep their state.
func (c *systemConf) servers() []*backingOff {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock()
	if c.looked >= 0 && now-c.looked < resolvConfAge {
		return c.list
	}
	first := c.looked < 0
	c.looked = now
	info, err := os.Stat(c.path)
	switch {
	case err != nil && first:
		c.replace(nil)
	case err != nil:
		// The file is being replaced; what it said holds until it is back.
	case first || !info.ModTime().Equal(c.modTime) || info.Size() != c.size:
		content, err := os.ReadFile(c.path)
		if err != nil && !first {
			return c.list
		}
		c.modTime, c.size = info.ModTime(), info.Size()
		c.replace(parseResolvConf(content))
	}
	return c.list
}

func (c *systemConf) replace(addrs []netip.Addr) {
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // resolv.conf(5)
	}
	list := make([]*backingOff, 0, len(addrs))
	for _, addr := range addrs {
		list = append(list, c.keepOrMake(netip.AddrPortFrom(addr, 53)))
	}
	c.list = list
}

func (c *systemConf) keepOrMake(addr netip.AddrPort) *backingOff {
	for _, old := range c.list {
		if old.server.(*plainServer).addr == addr { // the list holds nothing else
			return old
		}
	}
	return &backingOff{server: &plainServer{addr: addr, dial: c.dial, name: "system (" + addr.Addr().String() + ")"}}
}

// parseResolvConf returns the addresses of the nameserver lines, at most
// maxSystemServers. Everything else in the file (search domains, options) is
// none of the guest's business.
func parseResolvConf(content []byte) []netip.Addr {
	var addrs []netip.Addr
	lines := bufio.NewScanner(bytes.NewReader(content[:min(len(content), maxResolvConf)]))
	for lines.Scan() && len(addrs) < maxSystemServers {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
