package secretproxy

import (
	"bytes"
	"slices"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
)

// looksLikeJSON reports whether a text begins as an object or array of JSON does,
// within which a value is escaped.
func looksLikeJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// messageSwap puts values into one message of the guest's.
type messageSwap struct {
	way     *frameWay
	swapper *swapper
	escape  func([]byte) []byte
	grown   int
}

// newMessageSwap looks at the secrets as they are when a message begins: a
// connection outlives rotations and reloads.
func newMessageSwap(w *frameWay, json bool) *messageSwap {
	ws := w.ws
	ex := *ws.ex
	ex.state = ws.proxy.state.Load()
	ex.table, ex.used = nil, new(usedSecrets)
	s := &messageSwap{way: w, swapper: &swapper{proxy: ws.proxy, ex: &ex, req: ws.req}}
	if json {
		s.escape = jsonEscape
	}
	return s
}

// latest finds and replaces placeholders in the payload of a message.
func (s *messageSwap) latest() (*mask.Set, mask.Replacer) {
	t := s.swapper.ex.state.table.Load()
	return t.finder, func(h mask.Hit) ([]byte, error) { return s.replace(t, &h) }
}

func (s *messageSwap) replace(t *table, h *mask.Hit) ([]byte, error) {
	value, err := s.swapper.value(t, h, policies.Place{Kind: policies.InWebSocket}, s.escape)
	s.way.place = s.swapper.ex.place
	if s.grown += len(value); err == nil && s.grown > maxFrameGrowth {
		return nil, errGrowth
	}
	if err == nil {
		err = s.way.take(2 * len(value))
	}
	return value, err
}

// forbid refuses a control frame with a placeholder.
func (s *messageSwap) forbid(payload []byte) error {
	e := s.swapper.ex.state.table.Load().find(string(payload))
	if e == nil {
		return nil
	}
	s.swapper.violation(e, "websocket control frame", "")
	s.way.place = s.swapper.ex.place
	return &errViolation{s.swapper.fault}
}

// done tells the audit log of values that went out, each once for a connection.
func (s *messageSwap) done() {
	ws, ex := s.way.ws, s.swapper.ex
	fresh := slices.DeleteFunc(ex.used.list(), func(e *entry) bool {
		name := e.holder.Policy().Name
		if slices.Contains(ws.audited, name) {
			return true
		}
		ws.audited = append(ws.audited, name)
		return false
	})
	ws.proxy.auditSwaps(ex, fresh)
}
