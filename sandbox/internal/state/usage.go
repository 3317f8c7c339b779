package state

import "time"

// Usage is what a running sandbox uses at a moment, and what its gateway counted since its start. Everything except
// Guest was measured on this machine, outside of the guest.
type Usage struct {
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	// Running, in nanoseconds, is since its start.
	Running time.Duration `json:"running_ns"`
	CPUs    int           `json:"cpus"`
	// CPU, in nanoseconds, is the processor time that the guest's machine took of this one.
	CPU time.Duration `json:"cpu_ns"`
	// Resident is the memory that the guest's machine takes of this one, Memory what the guest has, in bytes.
	Resident int64 `json:"memory_resident_bytes"`
	Memory   int64 `json:"memory_bytes"`
	// DiskUsed is what its writable disk takes on this machine, Disk its size; 0 for one in memory.
	DiskUsed int64 `json:"disk_used_bytes"`
	Disk     int64 `json:"disk_bytes"`
	// Jobs are those that run.
	Jobs int `json:"jobs"`
	// Guest is what the guest reports; nil if it didn't in time.
	Guest *GuestUsage `json:"guest,omitempty"`
	// Gateway is nil without a network.
	Gateway *GatewayUsage `json:"gateway,omitempty"`
	// Problem says why there is nothing but a name.
	Problem string `json:"problem,omitempty"`
}

// GuestUsage is what a guest reports about itself. It may report anything.
type GuestUsage struct {
	MemoryUsed int64 `json:"memory_used_bytes"`
	Processes  int   `json:"processes"`
	OOMKills   int64 `json:"oom_kills"`
}

// GatewayUsage is what a gateway carries, and counted since the start. The guest influences only numbers in it.
type GatewayUsage struct {
	// BytesUp and BytesDown are of the frames from and to the guest.
	BytesUp    int64 `json:"bytes_up"`
	BytesDown  int64 `json:"bytes_down"`
	FramesUp   int64 `json:"frames_up"`
	FramesDown int64 `json:"frames_down"`
	// FramesDropped are those that the frame guard threw away, by its reasons; Limits how often bounds of the link were
	// reached.
	FramesDropped map[string]int64 `json:"frames_dropped,omitempty"`
	Limits        map[string]int64 `json:"limits,omitempty"`
	// Flows are the guest's TCP connections and UDP flows that are alive now, Clients those of published ports.
	Flows   int `json:"flows"`
	Clients int `json:"clients"`
	// Opened are flows that were let through, WouldDeny verdicts that report mode let through.
	Opened    uint64        `json:"flows_opened"`
	WouldDeny uint64        `json:"would_deny"`
	Denied    []DeniedUsage `json:"denied,omitempty"`
	DNS       DNSUsage      `json:"dns"`
	// Requests of inspected connections, and of them those with a secret put in (Swaps), and with one where it may not go
	// (Violations). Masked counts values that were taken out of answers.
	Requests   uint64 `json:"requests"`
	Swaps      uint64 `json:"secret_swaps"`
	Masked     uint64 `json:"secrets_masked"`
	Violations uint64 `json:"secret_violations"`
	// EgressBytes count against [limits] egress_bytes, which is EgressLimit; 0 is none.
	EgressBytes int64 `json:"egress_bytes"`
	EgressLimit int64 `json:"egress_limit_bytes"`
	// SecretMemory is what the proxy holds for inspected connections, in bytes; Full how often there was no room for more.
	SecretMemory int64  `json:"proxy_memory_bytes"`
	Full         uint64 `json:"proxy_memory_full"`
}

// DeniedUsage counts denials: Kind is one of docs/audit.md, Reason one of docs/reasons.md.
type DeniedUsage struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// DNSUsage counts questions; all but Queries are parts of them.
type DNSUsage struct {
	Queries   uint64 `json:"queries"`
	Cached    uint64 `json:"cached"`
	Refused   uint64 `json:"refused"`
	Rebinding uint64 `json:"rebinding"`
	Failed    uint64 `json:"failed"`
	Limited   uint64 `json:"limited"`
}
