package policies

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// privateSuffix after the protocol of a flag stands for private = true, and
// withinSuffix, with ranges between commas behind it, for within.
const (
	privateSuffix = "+private"
	withinSuffix  = "+within="
)

// ParseAllowFlag reads the argument of --allow into the rule that the file would
// hold:
//
//	api.github.com                https to port 443
//	api.github.com:443            the same
//	*.example.com:8443/https      a pattern, with a protocol
//	git.example.com:22            tcp, since it is neither port 443 nor 80
//	ntp.example.com:123/udp
//	192.0.2.7:5432                an address: tcp
//	192.0.2.0/24:5000-5099/tcp    a range of addresses and of ports
//	[2001:db8::1]:443/https
//	192.0.2.7/icmp                no port
//	10.20.0.5:5432/tcp+private    into a special-purpose range, which "+private" must say
//	wiki.corp.example:443/https+within=10.8.0.0/16
//	                              a name with addresses in that range
//
// The first --allow makes egress.default "deny".
func ParseAllowFlag(s string) (Rule, error) { return parseRuleFlag("allow", s) }

// ParseDenyFlag reads the argument of --deny, which has the form of --allow's: the names that nothing may reach. Without a
// port it is of every port, without a protocol of every one.
func ParseDenyFlag(s string) (Rule, error) { return parseRuleFlag("deny", s) }

// parseRuleFlag reads a rule of a list, "allow" or "deny".
func parseRuleFlag(list, s string) (Rule, error) {
	rest, ranges, inside := strings.Cut(s, withinSuffix)
	dest, protocol, private := cutProtocol(rest)
	host, port, err := cutFlagPort(dest)
	if strings.Contains(s, "://") {
		err = errors.New("it is a URL; write HOST:PORT")
	}
	if err != nil {
		return Rule{}, flagError(list, s, err.Error(), "")
	}
	f := fileRule{Private: private}
	if inside {
		f.Within = strings.Split(ranges, ",")
	}
	name := "--" + list + " " + s
	f.Name = &name
	if protocol != "" {
		f.Protocol = &protocol
	}
	if port != "" {
		f.Ports = []any{port}
	}
	if prefix, ok := flagPrefix(host); ok {
		f.CIDRs = []string{prefix}
	} else {
		f.Hosts = []string{host}
	}
	if private && len(f.Hosts) > 0 {
		return Rule{}, flagError(list, s, "it is a name, whose addresses whoever runs its DNS chooses", fmt.Sprintf("write \"%s%s10.20.0.0/16\" with the ranges that it may have", strings.TrimSuffix(rest, privateSuffix), withinSuffix))
	}
	c := &converter{faults: &faults{}, set: map[string]Position{}}
	rules := c.rule(list, 0, f)
	if len(c.list) > 0 {
		remedy := c.list[0].Remedy
		if strings.Contains(remedy, "private = true") {
			remedy = fmt.Sprintf("write %q if it shall be reached", suggestPrivate(dest, protocol))
		}
		return Rule{}, flagError(list, s, c.list[0].Message, remedy)
	}
	if len(rules) != 1 {
		return Rule{}, flagError(list, s, "the ports call for different protocols", "add /tcp or /https")
	}
	return rules[0], nil
}

// flagName begins the name of a rule that --allow made.
const flagName = "--allow "

// withinFlag is the flag of r with the ranges that its names may have.
func withinFlag(r Rule, ranges []netip.Prefix) string {
	list := make([]string, 0, len(ranges))
	for _, p := range ranges {
		list = append(list, p.String())
	}
	dest := strings.TrimPrefix(r.Name, flagName)
	if _, protocol, _ := cutProtocol(dest); protocol == "" {
		dest += "/" + r.Protocol.String()
	}
	return flagName + dest + withinSuffix + strings.Join(list, ",")
}

// flagError puts a fault into words for a command line.
func flagError(list, s, message, remedy string) error {
	return Error{Key: fmt.Sprintf("--%s %q", list, s), Message: message, Remedy: remedy}
}

func suggestPrivate(dest, protocol string) string {
	if protocol == "" {
		protocol = TCP.String()
	}
	return dest + "/" + protocol + privateSuffix
}

// cutProtocol cuts "/udp" or "/tcp+private" off the end. The length of a range
// is all digits, a protocol never is.
func cutProtocol(s string) (dest, protocol string, private bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 || i+1 == len(s) || s[i+1] >= '0' && s[i+1] <= '9' {
		return s, "", false
	}
	protocol, private = strings.CutSuffix(s[i+1:], privateSuffix)
	return s[:i], protocol, private
}

// cutFlagPort cuts ":443" off the end of a name, an address in brackets or an
// IPv4 address. A bare IPv6 address has no port.
func cutFlagPort(s string) (host, port string, err error) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, tail, closed := strings.Cut(rest, "]")
		if !closed || tail != "" && tail[0] != ':' {
			return "", "", errors.New("the bracket isn't closed")
		}
		return host, strings.TrimPrefix(tail, ":"), nil
	}
	if strings.Count(s, ":") > 1 {
		return s, "", nil
	}
	host, port, found := strings.Cut(s, ":")
	if found && port == "" {
		return "", "", errors.New("there is no port after the colon")
	}
	return host, port, nil
}

// flagPrefix returns an address or range in the form of cidrs.
func flagPrefix(s string) (string, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()).String(), true
	}
	if _, err := hostname.ParsePattern(s); err == nil {
		return "", false
	}
	return s, strings.Contains(s, "/")
}
