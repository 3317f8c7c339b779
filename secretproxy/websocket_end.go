package secretproxy

import (
	"errors"
	"net/http"

	"github.com/msb-project/msb/secretproxy/memory"
)

// Reasons for a Close frame (RFC 6455, section 7.4.1).
const (
	closeProtocol = 1002
	closePolicy   = 1008
	closeLater    = 1013 // of IANA's registry: try again later
)

// fault is the refusal for what ended a way; nil if the network did.
func (w *frameWay) fault(err error) *refusal {
	var violation *errViolation
	switch {
	case errors.As(err, &violation):
		return violation.refusal
	case errors.Is(err, memory.ErrFull):
		return memoryFull()
	case !errors.Is(err, errFrame) && !errors.Is(err, errGrowth):
		return nil
	case w.fromClient:
		return &refusal{status: http.StatusBadRequest, code: "websocket", message: err.Error()}
	}
	return &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: err.Error()}
}

// refuse tells the guest and the audit log why the connection ends.
func (ws *webSocket) refuse(w *frameWay, fault *refusal) {
	ex := *ws.ex
	ex.place = w.place
	ws.proxy.auditRefusal(&ex, fault)
	ws.proxy.violated(&ex, fault)
	code := uint16(closeProtocol)
	switch {
	case fault.secret != "":
		code = closePolicy
	case fault.status == http.StatusServiceUnavailable:
		code = closeLater
	}
	payload := append([]byte{byte(code >> 8), byte(code)}, fault.code...)
	_, _ = guestWriter{ws}.Write(appendFrame(nil, &frameHead{final: true, opcode: opClose}, payload))
}
