package policies

// The types of this file are the policy file as TOML has it: the tree is read
// into them, the JSON schema is made from them, and the tables of docs/policy.md
// are checked against them. Pointers are keys that may be left out. The tags
// are: toml, the key; doc, one sentence for editors; kind, how text is read
// further (size, rate, duration, ports, argv or an enum); of, the values of an
// enum.

type fileDoc struct {
	Version *int64                `toml:"version" doc:"Version of the file format; 1."`
	Include []string              `toml:"include" doc:"Presets, or paths of policy files, that are merged into this one. Must stand above the first table."`
	Sandbox *fileSandbox          `toml:"sandbox" doc:"What msb run starts; flags override it."`
	Egress  *fileEgress           `toml:"egress" doc:"What may leave the sandbox."`
	Ingress *fileIngress          `toml:"ingress" doc:"Who may connect to the guest's ports, beside this machine."`
	SSH     *fileSSH              `toml:"ssh" doc:"Ways back to the machine of an SSH client, which lead around all other rules."`
	Hosts   map[string]string     `toml:"hosts" doc:"Names that lead to a target of the host's choosing: ADDRESS:PORT, ADDRESS (the same port), sandbox:NAME:PORT or builtin:echo."`
	DNS     *fileDNS              `toml:"dns" doc:"How allowed names are resolved."`
	TLS     *fileTLS              `toml:"tls" doc:"Which connections are inspected, and which roots are trusted."`
	Secrets map[string]fileSecret `toml:"secrets" doc:"Values that stay outside the sandbox and replace placeholders in its requests."`
	Limits  *fileLimits           `toml:"limits" doc:"Bounds on what one sandbox uses."`
	Agent   *fileAgent            `toml:"agent" doc:"What an agent may have of this machine by way of msb mcp; no other command reads it."`
}

type fileSandbox struct {
	Image   *string  `toml:"image" doc:"OCI reference, oci:DIR, docker-archive:FILE, dir:PATH or builtin."`
	Command []string `toml:"command" doc:"Program and arguments."`
	CPUs    *int64   `toml:"cpus" doc:"Virtual CPUs."`
	Memory  any      `toml:"memory" kind:"size" doc:"Memory of the machine, such as 512M."`
}

type fileEgress struct {
	Default *string    `toml:"default" kind:"enum" of:"deny public" doc:"What happens to a flow that no rule matches."`
	Mode    *string    `toml:"mode" kind:"enum" of:"enforce report" doc:"report lets through what a rule or the default would deny, and logs it; special-purpose ranges stay shut."`
	Allow   []fileRule `toml:"allow" doc:"Rules that let flows out."`
	Deny    []fileRule `toml:"deny" doc:"Rules that beat every allow rule."`
}

type fileRule struct {
	Name     *string  `toml:"name" doc:"Named in every verdict; unique."`
	Hosts    []string `toml:"hosts" doc:"Names: example.com, *.example.com (any depth below, not the apex) or *."`
	CIDRs    []string `toml:"cidrs" doc:"Address ranges, 192.0.2.0/24."`
	Within   []string `toml:"within" doc:"Ranges that the addresses of hosts must be in, the only way of a name to special-purpose ones; 0.0.0.0/0 and ::/0 are every public address."`
	Ports    []any    `toml:"ports" kind:"ports" doc:"Port numbers, or ranges as text, 8000-8099."`
	Protocol *string  `toml:"protocol" kind:"enum" of:"any https http tls tcp udp icmp" doc:"Left out in an allow rule: with hosts, https on 443, http on 80, tcp elsewhere; with cidrs, tcp. Left out in a deny rule: any."`
	Methods  []string `toml:"methods" doc:"HTTP methods; makes the rule inspected."`
	Paths    []string `toml:"paths" doc:"Globs over the decoded path: * within a segment, ** across segments; makes the rule inspected."`
	Private  bool     `toml:"private" doc:"Lets cidrs reach special-purpose ranges; metadata addresses only as /32 or /128."`
	Why      *string  `toml:"why" doc:"A sentence for people, shown with verdicts."`
}

type fileIngress struct {
	Allow []fileIngressRule `toml:"allow" doc:"Rules that let other machines, or other sandboxes, connect."`
}

type fileIngressRule struct {
	Name  *string  `toml:"name" doc:"Named in every verdict; unique."`
	CIDRs []string `toml:"cidrs" doc:"Addresses of clients of published ports, 192.168.1.0/24."`

	Sandboxes []string `toml:"sandboxes" doc:"Names of other sandboxes, whose [hosts] leads here; instead of cidrs, with ports."`
	Ports     []any    `toml:"ports" kind:"ports" doc:"The guest's ports that these sandboxes may connect to."`

	Why *string `toml:"why" doc:"A sentence for people."`
}

type fileSSH struct {
	AgentForwarding   *bool `toml:"agent_forwarding" doc:"Lets the guest use the client's ssh agent (ssh -A)."`
	ReverseForwarding *bool `toml:"reverse_forwarding" doc:"Lets the guest's programs connect to what the client names (ssh -R)."`
	X11Forwarding     *bool `toml:"x11_forwarding" doc:"Lets the guest's programs use the client's display (ssh -X, -Y)."`
}

type fileDNS struct {
	Servers []string `toml:"servers" doc:"system, udp://IP, tls://IP#NAME or https://HOST/PATH, asked in this order."`
	MinTTL  *string  `toml:"min_ttl" kind:"duration" doc:"Shortest life of a pin."`
	MaxTTL  *string  `toml:"max_ttl" kind:"duration" doc:"Longest life of a pin."`
}

type fileTLS struct {
	Inspect *string       `toml:"inspect" kind:"enum" of:"auto all none" doc:"auto opens connections where a rule or a secret needs it."`
	Bypass  []string      `toml:"bypass" doc:"Names that are never inspected; no secret goes there."`
	ExtraCA []fileExtraCA `toml:"extra_ca" doc:"Roots beside the system's, for the named hosts only."`
	Via     *string       `toml:"via" doc:"Upstream proxy, http://HOST:PORT."`
}

type fileExtraCA struct {
	File  *string  `toml:"file" doc:"PEM file, relative to the policy file."`
	Hosts []string `toml:"hosts" doc:"Names for which these roots are trusted."`
}

type fileSecret struct {
	From         any       `toml:"from" kind:"argv" doc:"env:NAME, file:PATH or command:ARGV; a list where an argument holds a space."`
	Hosts        []string  `toml:"hosts" doc:"Where the value may go: names as in rules, port 443; NAME:PORT for another port."`
	In           []string  `toml:"in" doc:"Where in a request: header:NAME, basic, query:NAME, body, websocket."`
	Placeholder  *string   `toml:"placeholder" doc:"Shape that clients expect; {n} is n random letters and digits, at least 16."`
	OnViolation  *string   `toml:"on_violation" kind:"enum" of:"block terminate" doc:"What happens when the placeholder turns up elsewhere."`
	TTL          *string   `toml:"ttl" kind:"duration" doc:"How long the answer of a command is kept."`
	RefreshOn401 bool      `toml:"refresh_on_401" doc:"Whether a command is run again after a server answered 401."`
	Kind         *string   `toml:"kind" kind:"enum" of:"aws-sigv4" doc:"aws-sigv4: requests are signed again with the real credentials."`
	Services     []string  `toml:"services" doc:"aws-sigv4: services that may be signed for."`
	Regions      []string  `toml:"regions" doc:"aws-sigv4: regions that may be signed for."`
	Upgrades     []string  `toml:"upgrades" doc:"Protocols other than WebSocket that a connection to the hosts may be upgraded to, where nothing is replaced or masked."`
	Mint         *fileMint `toml:"mint" doc:"JSON answers whose tokens become placeholders."`
}

type fileMint struct {
	Path   *string  `toml:"path" doc:"Path at which an answer that can't be read is refused."`
	Fields []string `toml:"fields" doc:"Top-level fields that hold tokens, in any JSON answer of the hosts."`
}

type fileAgent struct {
	Images      []string `toml:"images" doc:"Images that may be pulled for an agent, beside that of [sandbox]."`
	Directories []string `toml:"directories" doc:"Directories that every sandbox of an agent sees: HOST:GUEST, or HOST:GUEST:rw. A relative HOST is below the file's directory."`
	Secrets     []string `toml:"secrets" doc:"Names of this file's secrets that an agent's sandboxes get; left out, all of them."`
	Tools       []string `toml:"tools" doc:"Toolsets beside the default tools: files, images, manage, metrics or all."`
	MayRequest  []string `toml:"may_request" doc:"Hosts that an agent may ask a person for, by https: names as in rules, port 443; NAME:PORT for another port. Left out, every name at port 443; empty, none."`
	Approve     *string  `toml:"approve" kind:"enum" of:"terminal client" doc:"Where a person answers what an agent asks for: terminal, by msb requests; client, in the agent's own client too, which vouches that it asks one."`
	Sandboxes   *int64   `toml:"sandboxes" doc:"Sandboxes at once."`
	CPUs        *int64   `toml:"cpus" doc:"Virtual CPUs of one sandbox."`
	Memory      any      `toml:"memory" kind:"size" doc:"Memory of one sandbox, such as 2G."`
	Disk        any      `toml:"disk" kind:"size" doc:"Disk of one sandbox, such as 10G; sparse."`
	IdleStop    *string  `toml:"idle_stop" kind:"duration" doc:"When a sandbox without a call and a job is stopped."`
	Lifetime    *string  `toml:"lifetime" kind:"duration" doc:"When a sandbox is stopped whatever it does."`

	Children *fileChildren `toml:"children" doc:"What a sandbox of an agent may have of children; without it, none."`
}

type fileChildren struct {
	Count    *int64   `toml:"count" doc:"Children at once of one sandbox, with theirs."`
	Total    *int64   `toml:"total" doc:"Children of one sandbox in its life, with theirs."`
	Depth    *int64   `toml:"depth" doc:"Generations: 1 is children without children."`
	CPUs     *int64   `toml:"cpus" doc:"Virtual CPUs of all children of one sandbox together."`
	Memory   any      `toml:"memory" kind:"size" doc:"Memory of all children of one sandbox together, such as 2G."`
	Images   []string `toml:"images" doc:"Images that a child may have, beside its parent's."`
	Lifetime *string  `toml:"lifetime" kind:"duration" doc:"When a child is removed whatever it does."`
}

type fileLimits struct {
	TCPConnections *int64 `toml:"tcp_connections" doc:"TCP connections open at once."`
	UDPFlows       *int64 `toml:"udp_flows" doc:"UDP flows open at once."`
	DNSPerSecond   *int64 `toml:"dns_per_second" doc:"DNS queries per second."`
	EgressBytes    any    `toml:"egress_bytes" kind:"size" doc:"Bytes that the sandbox may send in its life, with 64 more for each DNS question, datagram, ping and attempt to connect."`
	EgressRate     any    `toml:"egress_rate" kind:"rate" doc:"Bytes per second, such as 100M/s."`
}
