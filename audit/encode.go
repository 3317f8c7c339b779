package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/msb-project/msb/internal/printable"
)

// encoder writes events as lines. It keeps its buffers: at tens of thousands of
// events a second their garbage would be felt by whoever waits for an answer.
type encoder struct {
	event Event // the encoder of JSON wants a pointer, which would move each event to the heap
	data  bytes.Buffer
	json  *json.Encoder
}

func newEncoder() *encoder {
	e := &encoder{}
	e.json = json.NewEncoder(&e.data)
	return e
}

// appendLine appends ev as one line of JSON. encoding/json escapes C0 controls
// and repairs UTF-8; what a terminal would still obey when somebody looks at the
// file (C1 controls, DEL, text direction) is escaped here.
func (e *encoder) appendLine(b []byte, ev Event) ([]byte, error) {
	e.data.Reset()
	e.event = ev
	if err := e.json.Encode(&e.event); err != nil { //nolint:gosec // G117: the field Secret holds a secret's name, never its value
		return b, fmt.Errorf("audit event can't be encoded: %w", err)
	}
	return AppendPrintable(b, e.data.Bytes()), nil
}

// AppendPrintable appends JSON, in which the same text stands for what a
// terminal would obey: C1 controls, DEL, text direction. C0 controls are escaped
// in any JSON.
func AppendPrintable(b, data []byte) []byte {
	for len(data) > 0 {
		plain := 0
		for plain < len(data) && data[plain] < utf8.RuneSelf && data[plain] != 0x7f {
			plain++
		}
		b = append(b, data[:plain]...)
		data = data[plain:]
		if len(data) == 0 {
			break
		}
		r, n := utf8.DecodeRune(data)
		if printable.Obeyed(r) { // only inside strings: the rest of JSON is printable ASCII
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = append(b, data[:n]...)
		}
		data = data[n:]
	}
	return b
}
