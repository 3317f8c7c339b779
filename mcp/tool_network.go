package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/sandbox"
)

func (s *server) network(ctx context.Context, raw json.RawMessage) (string, error) {
	var a networkArgs
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	st, err := s.own(a.Sandbox, false)
	made := err == nil
	if err != nil && (a.Sandbox != "" && a.Sandbox != defaultName || !errors.Is(err, sandbox.ErrNoSandbox)) {
		return "", err
	}
	switch a.Action {
	case "request", "answer":
		if !made {
			return "", err
		}
		if a.Action == "request" {
			return networkTool{s}.request(ctx, st, &a)
		}
		return networkTool{s}.answer(ctx, st, a.Request)
	case "explain":
		if a.To == "" {
			return "", wrong(`say where to, such as "api.github.com:443"`)
		}
		if a.Path != "" && a.Path[0] != '/' && a.Path != "*" {
			return "", wrong("path %q: give one that begins with /", printed(a.Path))
		}
		if strings.Contains(a.To, "://") {
			return "", wrong("to %q is a URL; give HOST:PORT, and its path as path", printed(a.To))
		}
		p := s.opts.Floor // the policy that the default sandbox will be made with
		if made {
			if p, err = s.only(st).Policy(st.Name); err != nil {
				return "", err
			}
		}
		answer, err := sandbox.Explain(p, a.To, strings.ToUpper(a.Method), a.Path)
		if errors.Is(err, sandbox.ErrConfig) { // no configuration of a sandbox was asked about
			return "", wrong("%s", strings.TrimPrefix(err.Error(), sandbox.ErrConfig.Error()+": "))
		}
		if err != nil {
			return "", said{err}
		}
		return explainedAnswer(answer)
	case "denied":
		var d audit.DenialSummary
		if made {
			if d, err = s.only(st).Denied(st.Name); err != nil {
				return "", err
			}
		}
		if d.Empty() {
			return "nothing was denied", nil
		}
		text, err := explained(&d)
		var c capture
		_, _ = c.Write([]byte(text)) // the guest chose the names
		return deniedHead + c.untrusted("denied"), err
	}
	return "", wrong("action %q", printed(a.Action))
}

// resolverAnswers is the answer about port 53, to which no rule applies.
const resolverAnswers = "msb's own resolver answers what is sent to port 53, whatever the address, and no such packet goes out; whether it resolves a name is in the answer about a port of that name, such as NAME:443"

// explainedAnswer is an answer with its steps as lines.
func explainedAnswer(a *sandbox.Answer) (string, error) {
	short := struct {
		sandbox.Answer
		Steps []string `json:"steps"`
	}{*a, []string{}}
	for _, s := range a.Steps {
		if s.What == "port 53" {
			return resolverAnswers, nil
		}
		short.Steps = append(short.Steps, s.Stage+", "+s.What+": "+s.Result)
	}
	return asJSON(short)
}

// deniedHead says how to read what follows.
const deniedHead = "newest first; count is how often (a name counts once, however often it is asked for), others counts what is not in the list\n"

// explained is a summary of denials as a client sees it, with the reasons as sentences. The oldest entries, for which a
// result has no room, are counted among the others.
func explained(d *audit.DenialSummary) (string, error) {
	all := struct {
		audit.DenialSummary
		Apart int               `json:"apart,omitempty"` // left out
		Why   map[string]string `json:"why,omitempty"`
	}{DenialSummary: *d, Why: map[string]string{}}
	for i := range d.List {
		if why := sandbox.WhyDenied(d.List[i].Reason); why != "" {
			all.Why[d.List[i].Reason] = why
		}
	}
	for {
		text, err := asJSON(all)
		n := len(all.List)
		if err != nil || len(text) <= outputBudget || n == 0 {
			return text, err
		}
		all.Others += all.List[n-1].Count
		all.List = all.List[:n-1]
	}
}

// shownDenials is how many destinations a note names.
const shownDenials = 3

// hostOnly is the name or address that a guest asked for, or "" for anything else.
func hostOnly(s string) string {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return addr.String()
	}
	if name, err := hostname.Parse(s); err == nil {
		return name.String()
	}
	return "what is no host name"
}

// deniedNote says what the policy refused since before; "" for nothing.
func deniedNote(d *audit.DenialSummary, name string) string {
	if d.Denied == 0 {
		return ""
	}
	var parts []string
	for i := range d.List[:min(len(d.List), shownDenials)] {
		to := hostOnly(d.List[i].Host)
		if d.List[i].Port != 0 {
			to = fmt.Sprintf("%s:%d", to, d.List[i].Port)
		}
		reason := d.List[i].Reason
		if reason == "" || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" { // not one of msb's reason codes
			reason = "denied"
		}
		if n := d.List[i].Count; n > 1 {
			reason += fmt.Sprintf(", %d times", n)
		}
		parts = append(parts, fmt.Sprintf("%q (%s)", to, reason))
	}
	if len(d.List) > shownDenials || d.Others > 0 {
		parts = append(parts, "others")
	}
	if name == "" {
		return fmt.Sprintf("network policy: %d denied: %s\n", d.Denied, strings.Join(parts, ", "))
	}
	return fmt.Sprintf("network policy: %d denied in this sandbox meanwhile: %s; the tool network explains it\n", d.Denied, strings.Join(parts, ", "))
}

// networkArgs are those of the tool network.
type networkArgs struct {
	Action  string   `json:"action"`
	Sandbox string   `json:"sandbox"`
	To      string   `json:"to"`
	Method  string   `json:"method"`
	Path    string   `json:"path"`
	Methods []string `json:"methods"`
	Why     string   `json:"why"`
	Request string   `json:"request"`
}

// networkTool is the tool "network", with what it asks people.
type networkTool struct{ *server }
