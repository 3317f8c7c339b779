package audit

import (
	"net/netip"
	"time"
)

// Kind says what an event is about. The values are stable: they are the first
// thing that readers of the log filter by.
type Kind string

// The kinds of events. A decision about a flow, a name or a request is exactly
// one event (invariant 1): flow.open, dns.query and http.request, or limit. Only
// denials in a flood share an event, which has their number as its Count.
const (
	// FlowOpen is the verdict on a TCP connection, a UDP flow or an ICMP echo.
	FlowOpen Kind = "flow.open"
	// FlowClose is the end of a flow that was let through, with its bytes and
	// duration.
	FlowClose Kind = "flow.close"
	// PortFlow is a connection to a published port, when it has ended.
	PortFlow Kind = "port.flow"
	// SSHForward is a way back to an SSH client's machine that was opened, refused,
	// or ended by a new policy.
	SSHForward Kind = "ssh.forward"
	// DNSQuery is the verdict on a DNS question, and its outcome.
	DNSQuery Kind = "dns.query"
	// DNSRebinding is an answer that held addresses which the name may not have.
	DNSRebinding Kind = "dns.rebinding"
	// HTTPRequest is the verdict on one request of an inspected connection.
	HTTPRequest Kind = "http.request"
	// SecretSwap is a placeholder replaced by its value.
	SecretSwap Kind = "secret.swap"
	// SecretViolation is a placeholder where its value may not go.
	SecretViolation Kind = "secret.violation"
	// PolicyReload is a new policy taken, or refused.
	PolicyReload Kind = "policy.reload"
	// AccessRequest is a request for more of the network than the policy allows,
	// AccessAnswer a person's answer to it, AccessEnd the end of one that was
	// approved, or that nobody answered.
	AccessRequest Kind = "access.request"
	AccessAnswer  Kind = "access.answer"
	AccessEnd     Kind = "access.end"
	// Limit is a bound of [limits] or of the gateway that was reached.
	Limit Kind = "limit"
	// LinkDrop is frames that the frame guard threw away.
	LinkDrop Kind = "link.drop"
	// SandboxCreate and SandboxRemove bracket the life of a sandbox with a name,
	// SandboxStart and SandboxStop each of its runs, and that of any other.
	SandboxCreate Kind = "sandbox.create"
	SandboxStart  Kind = "sandbox.start"
	SandboxStop   Kind = "sandbox.stop"
	SandboxRemove Kind = "sandbox.remove"
	// SandboxDie is the end of the main command, SandboxRestart that it is about
	// to be run again.
	SandboxDie     Kind = "sandbox.die"
	SandboxRestart Kind = "sandbox.restart"
	// SandboxPause and SandboxResume: its guest stands still between them.
	SandboxPause  Kind = "sandbox.pause"
	SandboxResume Kind = "sandbox.resume"
	// SandboxStopping announces that a sandbox ends by itself soon.
	SandboxStopping Kind = "sandbox.stopping"
	// ExecCreate, ExecStart and ExecDie are of one other command.
	ExecCreate Kind = "exec.create"
	ExecStart  Kind = "exec.start"
	ExecDie    Kind = "exec.die"
	// ChildRequest is what a program of the sandbox asked for by msb-ctl, once it
	// was done or refused.
	ChildRequest Kind = "child.request"
	// AuditDropped says how many events the log itself lost; see Log.
	AuditDropped Kind = "audit.dropped"
	// AuditRotated says how many lines were deleted with the oldest file.
	AuditRotated Kind = "audit.rotated"
)

// Event is one line of the audit log. Zero fields are left out of the JSON.
// Keys are stable: one may be added, none changes its meaning; docs/audit.md
// lists them.
//
// No field ever holds a secret's value, a query string or a body. Whoever fills
// Path cuts it at the first '?'; Emit does so once more.
type Event struct {
	// Time is filled in by Log when it is zero.
	Time time.Time `json:"time"`
	// Sandbox is the sandbox's name or id.
	Sandbox string `json:"sandbox,omitempty"`
	// Labels say what the sandbox is to its caller; see Options.Labels. Emit adds
	// the log's to an event's own.
	Labels map[string]string `json:"labels,omitempty"`
	Kind   Kind              `json:"kind"`
	// Flow ties the events of one flow together; it is unique in one run of a
	// gateway, from 1.
	Flow uint64 `json:"flow,omitempty"`

	// Proto is "tcp", "udp" or "icmp".
	Proto string `json:"proto,omitempty"`
	// SrcPort is the guest's port.
	SrcPort uint16 `json:"src_port,omitempty"`
	// Dst and Port are the destination as the guest addressed it.
	Dst  netip.Addr `json:"dst,omitzero"`
	Port uint16     `json:"port,omitempty"`
	// Client is who connected to a published port; Port is the guest's then.
	Client netip.AddrPort `json:"client,omitzero"`
	// Peer is the sandbox that connected to Port by its own [hosts], in place of
	// Client.
	Peer string `json:"peer,omitempty"`
	// Proxy is where the guest's packets went if it asked the gateway's own
	// proxy for Dst.
	Proxy netip.AddrPort `json:"proxy,omitzero"`
	// Names are what dnsguard pinned to Dst when the verdict was given.
	Names []string `json:"names,omitempty"`
	// Target is where [hosts] leads from Dst: "builtin:echo", "127.0.0.1:5000",
	// "sandbox:db:5432".
	Target string `json:"target,omitempty"`
	// SNI is the name in the ClientHello; Host the one in the HTTP request.
	SNI  string `json:"sni,omitempty"`
	Host string `json:"host,omitempty"`
	// Scheme, Method and Path are of an inspected request; Scheme is "https" or
	// "http". Path has no query string: it may hold a secret.
	Scheme string `json:"scheme,omitempty"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Overrides are the methods that headers of the request ask for beside
	// Method, separated by commas. All of them were judged.
	Overrides string `json:"overrides,omitempty"`
	// Status is the response's status code where the request was let through.
	Status int `json:"status,omitempty"`

	// Action is "allow", "deny" or "inspect".
	Action string `json:"action,omitempty"`
	// WouldDeny marks what report mode let through.
	WouldDeny bool `json:"would_deny,omitempty"`
	// Rule is the name of the rule that decided.
	Rule string `json:"rule,omitempty"`
	// Reason is a code of docs/reasons.md.
	Reason string `json:"reason,omitempty"`
	// Class is the address class of Dst where it isn't public.
	Class string `json:"class,omitempty"`
	// By is who answered a request, as their command says it.
	By string `json:"by,omitempty"`
	// Message is a sentence for people.
	Message string `json:"message,omitempty"`

	// BytesUp and BytesDown count payload from and to the guest.
	BytesUp   int64 `json:"bytes_up,omitempty"`
	BytesDown int64 `json:"bytes_down,omitempty"`
	// Duration is in nanoseconds in the JSON, under the key "duration_ns".
	Duration time.Duration `json:"duration_ns,omitempty"`

	// Count is of dropped frames, limit hits, lost events, deleted lines,
	// restarts or denials merged into this one.
	Count uint64 `json:"count,omitempty"`

	DNS *DNSDetail `json:"dns,omitempty"`

	// Secret is the secret's name. Never its value, never its placeholder.
	Secret string `json:"secret,omitempty"`
	// Place is where in a request the placeholder stood: "header:Authorization".
	Place string `json:"place,omitempty"`

	// Exec ties the events of one command together; it is unique in one run of a
	// sandbox. A job has its name in Job instead.
	Exec uint64 `json:"exec,omitempty"`
	Job  string `json:"job,omitempty"`
	// Program is the first word of a command: the others may be private.
	Program string `json:"program,omitempty"`
	// ExitCode is a command's; nil if it has none, because its sandbox or its
	// client ended it.
	ExitCode *int `json:"exit_code,omitempty"`
	// Verb and Child are of a ChildRequest: what was asked for, and which child.
	Verb  string `json:"verb,omitempty"`
	Child string `json:"child,omitempty"`
}

// DNSDetail is what dns.query and dns.rebinding say beside the verdict.
type DNSDetail struct {
	// Name is the name asked for, as it was normalised; a name that can't be
	// normalised stands here escaped.
	Name string `json:"name"`
	// Type is the question's type, "A", "HTTPS", "TYPE65280".
	Type string `json:"type,omitempty"`
	// Outcome is the response code that the guest got, "NOERROR", "REFUSED".
	Outcome string `json:"outcome,omitempty"`
	// Answers are the addresses and names that were handed to the guest.
	Answers []string `json:"answers,omitempty"`
	// Removed are addresses that were taken out of the answer.
	Removed []string `json:"removed,omitempty"`
	// Upstream is the server that answered, as the policy writes it.
	Upstream string `json:"upstream,omitempty"`
	// Cached says that nothing was asked upstream.
	Cached bool `json:"cached,omitempty"`
	// Latency is in nanoseconds in the JSON, under the key "latency_ns".
	Latency time.Duration `json:"latency_ns,omitempty"`
}

// Sink takes events. Emit never blocks and never fails: an audit log that could
// stall a packet would be a way to stall the gateway, and one that is full
// counts what it loses. What the event points to is the sink's from then on.
type Sink interface {
	Emit(Event)
}

// Discard is a Sink that keeps nothing.
type Discard struct{}

var _ Sink = Discard{}

// Emit implements Sink.
func (Discard) Emit(Event) {}
