package sandbox

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy"
)

// Answer is what Explain says of a destination.
type Answer = probe.Answer

// Explain judges a destination by p, without resolving or sending anything. to is HOST:PORT[/udp] or HOST/icmp; method
// and path are of one request, "" for none.
func Explain(p *policies.Policy, to, method, path string) (*Answer, error) {
	t, err := probe.Parse(to)
	if err != nil {
		return nil, fmt.Errorf("%w: to %w", ErrConfig, err)
	}
	if path != "" && path[0] != '/' && path != "*" {
		return nil, fmt.Errorf("%w: path %q: write a path that begins with \"/\"", ErrConfig, path)
	}
	t.Method, t.Path = method, path
	a, err := probe.Ask(p, t)
	if err != nil {
		return nil, Fail(err)
	}
	return &a, nil
}

// WhyDenied is a sentence about an audit.Denial's reason, "" for one that is unknown.
func WhyDenied(reason string) string {
	if r, ok := egress.ReasonOf(reason); ok {
		return r.Sentence()
	}
	return secretproxy.WhyViolation(reason)
}

// Denied summarises the refusals in the audit log of the sandbox of that name, whether it runs or not.
func (h *Home) Denied(name string) (audit.DenialSummary, error) {
	w, err := watchLog(h, name, false)
	if err != nil {
		return audit.DenialSummary{}, err
	}
	defer func() { _ = w.Close() }() // it was only read
	return w.Next()
}

// WatchDenied watches the refusals of the sandbox of that name from now on.
func (h *Home) WatchDenied(name string) (*DeniedWatch, error) { return watchLog(h, name, true) }

func watchLog(h *Home, name string, fromNow bool) (*DeniedWatch, error) {
	st, err := loadStored(h, name)
	if err != nil {
		return nil, Fail(err)
	}
	w := &DeniedWatch{audit.NewTail(cmp.Or(st.Audit, filepath.Join(namedPath(h, name), state.AuditLog)))}
	if !fromNow {
		return w, nil
	}
	if err := w.tail.SkipToEnd(); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

// DeniedWatch reads refusals from an audit log.
type DeniedWatch struct{ tail *audit.Tail }

// Next returns the refusals since the watch began or since the last Next, as audit.Denials.Newest does.
func (w *DeniedWatch) Next() (audit.DenialSummary, error) {
	var d audit.Denials
	err := w.tail.Next(func(_ []byte, ev *audit.Event) error { d.Emit(*ev); return nil })
	return d.Newest(), err
}

// Close ends the watch.
func (w *DeniedWatch) Close() error { return w.tail.Close() }
