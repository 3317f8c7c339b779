package egress

import (
	_ "embed"
	"net/netip"
	"strings"
	"sync"

	"github.com/msb-project/msb/hostname"
)

//go:embed data/resolvers.txt
var resolversText string

// resolverList is the encrypted DNS resolvers that are known by name or address.
type resolverList struct {
	names nameIndex[struct{}]
	addrs map[netip.Addr]struct{}
}

// knownResolvers reads the list once. A line that is neither an address nor a
// pattern would be a bug of this package; a test reads them all.
var knownResolvers = sync.OnceValue(func() *resolverList {
	l := &resolverList{addrs: make(map[netip.Addr]struct{})}
	for line := range strings.Lines(resolversText) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if a, err := netip.ParseAddr(line); err == nil {
			l.addrs[a] = struct{}{}
			continue
		}
		if p, err := hostname.ParsePattern(line); err == nil {
			l.names.add(p, struct{}{})
		}
	}
	return l
})

func (l *resolverList) hasName(n hostname.Name) bool { return l.names.has(n) }

func (l *resolverList) hasAddr(a netip.Addr) bool {
	_, ok := l.addrs[a]
	return ok
}
