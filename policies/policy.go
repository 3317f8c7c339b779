package policies

import (
	"time"

	"github.com/msb-project/msb/hostname"
)

// currentVersion is the value of the key "version" that this package reads.
const currentVersion = 1

// Policy is one policy file after its includes. It is plain data: whoever holds
// one may read it from many goroutines, and nobody changes one that was handed
// on.
type Policy struct {
	// File is the path the policy was read from, for messages; "" if none.
	File string
	// Path is the absolute path of the file that Load or LoadSources read; "" for a
	// policy that was made in code or parsed from memory, which is its maker's own.
	Path    string
	Version int
	Sandbox SandboxDefaults
	Egress  EgressRules
	Ingress Ingress
	SSH     SSH
	// Hosts are the names that the operator maps to targets of the host's
	// choosing, in file order. They are the only way to the host itself.
	Hosts   []HostMapping
	DNS     DNS
	TLS     TLS
	Secrets []Secret
	Limits  Limits
	// Agent is nil for a policy without [agent].
	Agent *Agent
	// Include lists the presets and files that were merged in, as written.
	Include []string
	// Included lists the paths of the files that were merged in, and Outside the
	// real paths of those that lie outside of the directory of File. Only Load and
	// LoadSources fill them.
	Included, Outside []string
	// Floor is an operator's policy set by Tighten: a flow, a name or a target
	// is allowed only if this policy and Floor (and its Floor, if any) allow
	// it. It is nil without Tighten and has no key in the file.
	Floor *Policy
}

// Position is a place in a policy file. The zero value is no place (a rule from
// a flag or from code).
type Position struct {
	File string
	Line int // from 1
	Col  int // from 1, in characters
}

// SandboxDefaults says what `msb run --policy FILE` starts; flags override it. Zero
// fields mean that the file says nothing.
type SandboxDefaults struct {
	// Image is an OCI reference, "oci:DIR", "docker-archive:FILE", "dir:PATH"
	// or "builtin".
	Image   string
	Command []string
	CPUs    int
	// Memory is in bytes.
	Memory int64
}

// HostMapping is one line of [hosts]: the guest sees an address from
// 198.18.0.0/15 under Name, and connections to it go to Target.
type HostMapping struct {
	Name   hostname.Name
	Target Target
	Pos    Position
}

// DNS says how dnsguard resolves the names that a rule allows.
type DNS struct {
	// Servers are asked in this order, each after the one before it failed.
	// Never empty in a policy from Load: the default is the host's own.
	Servers []Server
	// MinTTL and MaxTTL clamp the life of a pin (defaults 60s and 1h).
	MinTTL, MaxTTL time.Duration
}

// Defaults of [dns].
const (
	DefaultMinTTL = time.Minute
	DefaultMaxTTL = time.Hour
)

// TLS says which connections are opened and how upstreams are verified.
type TLS struct {
	Inspect Inspect
	// Bypass names are never inspected and no secret goes there.
	Bypass []hostname.Pattern
	// ExtraCA are roots beside the system's, each for the named hosts only.
	ExtraCA []ExtraCA
	// Via is an upstream proxy ("http://proxy.corp:3128") for inspected and
	// relayed TLS, itself an explicit rule of the operator; "" for none. It may
	// hold no user name or password.
	Via string
}

// ExtraCA is a PEM file of roots that are trusted for Hosts only.
type ExtraCA struct {
	File  string
	Hosts []hostname.Pattern
	Pos   Position
	// PEM, if not nil, is what File held when it was approved, and is used in
	// its place. It has no key in the file.
	PEM []byte
}
