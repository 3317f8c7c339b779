package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// publish lets programs of this machine connect to a port of a sandbox.
func (s portTools) publish(ctx context.Context, box string, guest, host int64, udp bool) (string, error) {
	if guest < 1 || guest > maxPort || host < 0 || host > maxPort {
		return "", wrong("port %d of the sandbox at %d of this machine: ports are 1 to %d", guest, host, maxPort)
	}
	text := fmt.Sprintf("%d:%d", host, guest)
	if udp {
		text += "/udp"
	}
	p, err := s.agentPort(text)
	if err != nil {
		return "", err
	}
	st, err := s.own(box, false)
	if err != nil {
		return "", err
	}
	if !s.opts.Floor.Ingress.AdmitsAddresses() {
		return "", say("the operator's policy has no [[ingress.allow]] rule with cidrs, without which nothing is published")
	}
	if p, err = s.only(st).Ports().Add(ctx, st.Name, p); err != nil {
		return "", err
	}
	if p.Host == 0 {
		return fmt.Sprintf("port %d of sandbox %s is published from its next start on, which chooses this machine's port", p.Guest, st.Name), nil
	}
	return fmt.Sprintf("127.0.0.1:%d of the operator's machine leads to port %d of sandbox %s", p.Host, p.Guest, st.Name), nil
}

const maxPort = 65535

// unpublish ends the ports of a sandbox that lead to one of its own, or those from one of this machine's; 0 is any.
func (s portTools) unpublish(ctx context.Context, st *sandbox.Status, match func(sandbox.Port) bool) (string, error) {
	all, err := s.only(st).Ports().List(st.Name)
	if err != nil {
		return "", err
	}
	var ended []string
	for _, p := range all {
		if !match(p) {
			continue
		}
		removed, err := s.only(st).Ports().Remove(ctx, st.Name, p)
		if err != nil {
			return "", err
		}
		for _, r := range removed {
			ended = append(ended, r.String())
		}
	}
	if len(ended) == 0 {
		return "", say("sandbox %s publishes no such port; port_list shows those that it does", st.Name)
	}
	return "no longer published, with their connections: " + strings.Join(ended, ", "), nil
}

func (s portTools) listPorts(box string) (string, error) {
	st, err := s.own(box, false)
	if err != nil {
		return "", err
	}
	all, err := s.only(st).Ports().List(st.Name)
	if err != nil {
		return "", err
	}
	type row struct {
		Host  uint16 `json:"host_port"`
		Guest uint16 `json:"port"`
		Proto string `json:"protocol"`
	}
	rows := make([]row, 0, len(all))
	for _, p := range all {
		rows = append(rows, row{p.Host, p.Guest, p.Proto()})
	}
	return asJSON(map[string]any{"sandbox": st.Name, "ports": rows})
}

type portArgs struct {
	Sandbox string `json:"sandbox"`
	Port    int64  `json:"port"`
	Host    int64  `json:"host_port"`
	UDP     bool   `json:"udp"`
}

// portTools are the toolset "ports".
type portTools struct{ *server }

func (s portTools) all() []toolSpec {
	const propPort = `"port":{"type":"integer","description":"of the sandbox"}`
	return []toolSpec{
		{
			name: "port_publish", title: "Publish a port", open: true, hint: "expose forward port server localhost", call: adapter(func(ctx context.Context, a *portArgs) (string, error) {
				return s.publish(ctx, a.Sandbox, a.Port, a.Host, a.UDP)
			}),
			description: "Let programs of the operator's machine, and no others, connect to a port of a sandbox. The policy must have an ingress rule.",
			properties:  propSandbox + "," + propPort + `,"host_port":{"type":"integer","description":"of the operator's machine, from 1024 on; default: any that is free"},"udp":{"type":"boolean"}`, required: []string{"port"},
		},
		{
			name: "port_list", title: "List published ports", readOnly: true, idempotent: true, hint: "which ports are exposed", call: adapter(func(_ context.Context, a *portArgs) (string, error) { return s.listPorts(a.Sandbox) }),
			description: "List the ports that a sandbox publishes, as JSON.", properties: propSandbox,
		},
		{
			name: "port_remove", title: "Unpublish a port", destructive: true, hint: "unexpose stop forwarding port", call: adapter(func(ctx context.Context, a *portArgs) (string, error) {
				st, err := s.own(a.Sandbox, false)
				if err != nil {
					return "", err
				}
				return s.unpublish(ctx, st, func(p sandbox.Port) bool { return int64(p.Guest) == a.Port && (a.Host == 0 || int64(p.Host) == a.Host) })
			}),
			description: "End the publishing of a port of a sandbox, with its connections.", properties: propSandbox + "," + propPort + `,"host_port":{"type":"integer"}`, required: []string{"port"},
		},
	}
}

// agentPort reads a port that an agent publishes. It is for this machine alone: for others the operator publishes.
func (s *server) agentPort(text string) (sandbox.Port, error) {
	p, err := sandbox.ParsePort(text)
	if err != nil {
		return p, wrong("%w", err)
	}
	if p.Address.IsValid() && !p.Address.IsLoopback() {
		return p, wrong("port %q is for other machines; leave the address out", printed(text))
	}
	if p.Host != 0 && p.Host < minHostPort {
		return p, wrong("port %q: give this machine's port as 0, for any that is free, or at least %d", printed(text), minHostPort)
	}
	return p, nil
}
