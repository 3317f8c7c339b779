// Package egress owns the judgement: whether a flow, a name or an address may
// leave the sandbox, by which rule and why. It is pure: Decide takes what is
// known of a flow and returns a Verdict; it does no I/O, keeps nothing and
// doesn't allocate.
//
// Data flow: New compiles a policies.Policy into indexes (a prefix trie, a tree
// of reversed labels). The gateway, dnsguard and secretproxy ask Decide,
// DecideName and AllowsAddr. A Classifier knows what kind of address an address
// is, the host's own included, and Fuse asks it, and the host's kernel, once more
// about the exact address at the moment it is dialled.
//
// # Order of judgement
//
//  1. Special ranges. What isn't public is denied unless a rule opens it, for port
//     and transport: a private rule by the address, whatever it is called, or a
//     rule for a pinned name that has the address in its ranges (within). Or [hosts]
//     leads there. A metadata address needs a range of that one address. The host, the
//     gateway, loopback and the unspecified address are opened by no rule.
//     Report mode changes nothing here.
//  2. Deny rules. Those by address also look at IPv4 addresses inside IPv6 ones.
//     Those by name go by what the client said if that name is pinned to the
//     address, and otherwise by everything pinned to it: a client that says
//     nothing, or lies, is taken for the worst name there. Where some of the
//     names at a shared address are denied, the connection is peeked at.
//  3. Allow rules, which add up: what one of them allows is allowed.
//     A rule by name is about the addresses in its ranges; without any, about every
//     public one. At a special address, rules for its names have their ports to
//     themselves: private rules say nothing there, and UDP on a port of TLS or HTTP
//     is denied as QUIC.
//  4. The default. "public" lets out what no rule is about to every public
//     address. Where deny rules go by name, it peeks on their ports (80 and 443
//     for rules without ports), and there a name that can't be seen is denied.
//
// Then the operator's floor, if there is one, judges the same flow: both must
// allow it, and the closer look that either wants is taken.
//
// # What the protocols of allow rules mean
//
//   - tcp, any: by pinned name or by address, with no look at the bytes, so
//     that protocols in which the server speaks first don't stall. The
//     exception: if another rule lets a secret go to this host and port, the
//     connection is peeked at.
//   - tls: the SNI must be an allowed name that is pinned to the address. Never
//     opened. By address: any ClientHello.
//   - https: as tls, and opened where the rule has methods or paths, a secret
//     may go to the name, a deny rule is about requests to it, or tls.inspect is
//     "all"; under default = "deny" also where any deny rule goes by name, or any
//     rule is about requests, in the policy or in one that it is judged together
//     with, since a request for another name on this connection would go around
//     that rule (watch.go). Never for a name under tls.bypass, so that methods and
//     paths can't be had for it. An opened connection needs an SNI that is pinned,
//     also under rules by address.
//   - http: always handed to secretproxy, since each request on a connection
//     may name another host; only rules by address without methods and paths
//     relay it after a peek.
//   - udp, icmp: by pinned name or by address. UDP to port 443 of a host that
//     only https or tls rules name is denied as QUIC, so that clients fall back
//     to TCP; under "public" too, where the policy wants to see names there.
//   - A ClientHello with ECH never satisfies a rule by name.
//
// Port 853 and the resolvers listed in data/resolvers.txt are denied, under
// "public" too, unless a rule names them: the host without a star, the address
// as /32 or /128, or port 853 as a port of its own.
//
// A name of [hosts] needs no allow rule. If allow rules name it, they alone say
// with which ports, protocols and requests it may be reached. Without, and where
// https is opened for the sake of other rules, TLS and HTTP to it are opened on
// every port, and a client that says nothing is denied. The same holds for what
// default = "public" lets out under tls.inspect = "all".
//
// Path rules are compared with the decoded path; a path on whose meaning servers
// disagree is denied (CleanPath). Allow rules compare case, deny rules don't.
//
// # What this package does not protect against
//
//   - It believes its caller: pins, SNI, Host and what a connection's first
//     bytes are come from dnsguard, the gateway and secretproxy.
//   - Under default = "public", deny rules by name are a fence for the honest:
//     whoever knows an address and speaks on another port, or another protocol,
//     is not seen to say the name, and so is whoever asks another name's server
//     for it (domain fronting). Use default = "deny" to hold anybody, or
//     tls.inspect = "all", which leaves other protocols than HTTP and TLS.
//   - The list of foreign resolvers can't be complete.
//   - A tcp or any rule says nothing of what is spoken inside.
//   - Decide knows the addresses of the host's interfaces only, and what its
//     caller says in Flow.Local. The gateway asks the kernel for that (KernelOwns)
//     whenever it judges, and the fuse asks again; between a change of the host's
//     routes and its announcement, datagrams of a flow that is open already may
//     reach the host. Addresses that packet filters (NAT) of the host, or a router
//     in front of it, translate to the host look like any other address.
//   - What two machines that can see each other's public addresses do with an
//     allowed flow.
package egress
