package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msb-project/msb/sandbox"
)

// figure is one metric. of gives its values for one sandbox, with the labels behind the sandbox's name.
type figure struct {
	name string
	kind prometheus.ValueType
	desc *prometheus.Desc
	of   func(u *sandbox.Usage, give give)
}

type give func(v float64, labels ...string)

func gauge(name, help string, of func(*sandbox.Usage, give)) figure {
	return newFigure(prometheus.GaugeValue, name, help, of, nil)
}

func counter(name, help string, of func(*sandbox.Usage, give), labels ...string) figure {
	return newFigure(prometheus.CounterValue, name, help, of, labels)
}

func newFigure(kind prometheus.ValueType, name, help string, of func(*sandbox.Usage, give), labels []string) figure {
	return figure{name, kind, prometheus.NewDesc(name, help, append([]string{"sandbox"}, labels...), nil), of}
}

// one is a figure of one value.
func one[T int | int64 | uint64](value func(*sandbox.Usage) T) func(*sandbox.Usage, give) {
	return func(u *sandbox.Usage, give give) { give(float64(value(u))) }
}

// guest and gateway are figures that a sandbox may be without.
func guest[T int | int64](value func(*sandbox.GuestUsage) T) func(*sandbox.Usage, give) {
	return func(u *sandbox.Usage, give give) {
		if u.Guest != nil {
			give(float64(value(u.Guest)))
		}
	}
}

func gateway(values func(*sandbox.GatewayUsage, give)) func(*sandbox.Usage, give) {
	return func(u *sandbox.Usage, give give) {
		if u.Gateway != nil {
			values(u.Gateway, give)
		}
	}
}

func ofGateway[T int | int64 | uint64](value func(*sandbox.GatewayUsage) T) func(*sandbox.Usage, give) {
	return gateway(func(g *sandbox.GatewayUsage, give give) { give(float64(value(g))) })
}

var up = gauge("msb_sandbox_up", "1 for a sandbox that runs and answers, 0 for one that does not answer, or not yet.", func(u *sandbox.Usage, give give) {
	if u.Problem != "" {
		give(0)
		return
	}
	give(1)
})

// figures are all of them; docs/metrics.md lists them.
var figures = []figure{
	up,
	gauge("msb_sandbox_start_time_seconds", "When the sandbox was started, in seconds since 1970.", one(func(u *sandbox.Usage) int64 { return u.Started.Unix() })),
	gauge("msb_sandbox_cpus", "Virtual CPUs.", one(func(u *sandbox.Usage) int { return u.CPUs })),
	counter("msb_sandbox_cpu_seconds_total", "Processor time that the guest's machine took of the host.", func(u *sandbox.Usage, give give) { give(u.CPU.Seconds()) }),
	gauge("msb_sandbox_memory_resident_bytes", "Memory that the guest's machine takes of the host.", one(func(u *sandbox.Usage) int64 { return u.Resident })),
	gauge("msb_sandbox_memory_limit_bytes", "Memory that the guest has.", one(func(u *sandbox.Usage) int64 { return u.Memory })),
	gauge("msb_sandbox_disk_used_bytes", "What the writable disk takes on the host.", one(func(u *sandbox.Usage) int64 { return u.DiskUsed })),
	gauge("msb_sandbox_disk_limit_bytes", "Size of the writable disk; 0 for one in memory.", one(func(u *sandbox.Usage) int64 { return u.Disk })),
	gauge("msb_sandbox_jobs", "Jobs that run.", one(func(u *sandbox.Usage) int { return u.Jobs })),
	gauge("msb_guest_memory_used_bytes", "Memory in use, in the guest's own words.", guest(func(g *sandbox.GuestUsage) int64 { return g.MemoryUsed })),
	gauge("msb_guest_processes", "Processes, in the guest's own words.", guest(func(g *sandbox.GuestUsage) int { return g.Processes })),
	counter("msb_guest_oom_kills_total", "Processes killed for lack of memory, in the guest's own words.", guest(func(g *sandbox.GuestUsage) int64 { return g.OOMKills })),
	counter("msb_gateway_link_bytes_total", "Bytes of the frames on the guest's link.", gateway(func(g *sandbox.GatewayUsage, give give) {
		give(float64(g.BytesUp), "up")
		give(float64(g.BytesDown), "down")
	}), "direction"),
	counter("msb_gateway_link_frames_total", "Frames on the guest's link.", gateway(func(g *sandbox.GatewayUsage, give give) {
		give(float64(g.FramesUp), "up")
		give(float64(g.FramesDown), "down")
	}), "direction"),
	counter("msb_gateway_link_dropped_frames_total", "Frames that the frame guard threw away.", gateway(func(g *sandbox.GatewayUsage, give give) { each(g.FramesDropped, give) }), "reason"),
	counter("msb_gateway_limits_total", "How often a bound of the link was reached.", gateway(func(g *sandbox.GatewayUsage, give give) { each(g.Limits, give) }), "limit"),
	gauge("msb_gateway_flows", "TCP connections and UDP flows of the guest that are alive.", ofGateway(func(g *sandbox.GatewayUsage) int { return g.Flows })),
	gauge("msb_gateway_port_clients", "Connections and UDP flows of published ports that are alive.", ofGateway(func(g *sandbox.GatewayUsage) int { return g.Clients })),
	counter("msb_gateway_flows_opened_total", "Flows that were let through.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Opened })),
	counter("msb_gateway_denied_total", "Denials by kind (docs/audit.md) and reason (docs/reasons.md).", gateway(func(g *sandbox.GatewayUsage, give give) {
		for _, d := range g.Denied {
			give(float64(d.Count), d.Kind, d.Reason)
		}
	}), "kind", "reason"),
	counter("msb_gateway_would_deny_total", "What report mode let through in spite of the rules.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.WouldDeny })),
	counter("msb_gateway_dns_queries_total", "DNS questions.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.DNS.Queries })),
	counter("msb_gateway_dns_outcomes_total", "DNS questions that were answered from the cache, refused, without an answer upstream, above a bound, or answered with addresses that the name may not have.", gateway(func(g *sandbox.GatewayUsage, give give) {
		for _, o := range []struct {
			outcome string
			n       uint64
		}{{"cached", g.DNS.Cached}, {"refused", g.DNS.Refused}, {"failed", g.DNS.Failed}, {"limited", g.DNS.Limited}, {"rebinding", g.DNS.Rebinding}} {
			give(float64(o.n), o.outcome)
		}
	}), "outcome"),
	counter("msb_gateway_requests_total", "Requests of inspected connections.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Requests })),
	counter("msb_gateway_secret_swaps_total", "Requests into which a secret's value was put.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Swaps })),
	counter("msb_gateway_secrets_masked_total", "Values of secrets that were taken out of answers.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Masked })),
	counter("msb_gateway_secret_violations_total", "Requests with a placeholder where its value may not go.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Violations })),
	counter("msb_gateway_egress_bytes_total", "Bytes that count against [limits] egress_bytes.", ofGateway(func(g *sandbox.GatewayUsage) int64 { return g.EgressBytes })),
	gauge("msb_gateway_egress_limit_bytes", "[limits] egress_bytes; 0 for none.", ofGateway(func(g *sandbox.GatewayUsage) int64 { return g.EgressLimit })),
	gauge("msb_gateway_proxy_memory_bytes", "What the proxy holds for inspected connections.", ofGateway(func(g *sandbox.GatewayUsage) int64 { return g.SecretMemory })),
	counter("msb_gateway_proxy_memory_full_total", "How often there was no room for more of it.", ofGateway(func(g *sandbox.GatewayUsage) uint64 { return g.Full })),
}

func each(counts map[string]int64, give give) {
	for word, n := range counts {
		give(float64(n), strings.ToValidUTF8(word, "?"))
	}
}
