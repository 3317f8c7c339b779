package secretstore

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
)

// redacted is what a Secret looks like wherever it's printed, formatted,
// marshalled or logged.
const redacted = "[redacted]"

// Secret is a real value. Every way in which Go turns a value into text gives
// Redacted, also from within a struct. The zero value is an empty secret.
type Secret struct {
	state *state
}

// state is shared by copies of a Secret, so that Close reaches all of them.
type state struct {
	mu    sync.RWMutex
	bytes []byte
}

var (
	_ fmt.Stringer           = Secret{}
	_ fmt.GoStringer         = Secret{}
	_ fmt.Formatter          = Secret{}
	_ json.Marshaler         = Secret{}
	_ encoding.TextMarshaler = Secret{}
	_ slog.LogValuer         = Secret{}
)

// New takes ownership of value: Close overwrites it.
func New(value []byte) Secret { return Secret{&state{bytes: value}} }

// Reveal returns a copy of the value; empty after Close. The name is meant to
// stand out where it's called: that place sends the value somewhere.
func (s Secret) Reveal() []byte {
	if s.state == nil {
		return nil
	}
	s.state.mu.RLock()
	defer s.state.mu.RUnlock()
	return append([]byte(nil), s.state.bytes...)
}

// Len is the length of the value in bytes.
func (s Secret) Len() int {
	if s.state == nil {
		return 0
	}
	s.state.mu.RLock()
	defer s.state.mu.RUnlock()
	return len(s.state.bytes)
}

// Close overwrites the value, in every copy of s.
func (s Secret) Close() {
	if s.state == nil {
		return
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	clear(s.state.bytes)
	s.state.bytes = nil
}

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// Format implements fmt.Formatter: every verb, %x and %p among them, is
// redacted.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
