package secretstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// Bounds of a value.
const (
	// MinLength in bytes. Masking replaces every occurrence of a value in
	// responses: one of a few bytes would turn up in ordinary text and garble
	// it, and would be guessed anyway.
	MinLength = 8
	// MaxLength in bytes: what common servers take as one header (nginx's
	// large_client_header_buffers, 8 KiB), and what keeps the windows of the
	// masker small.
	MaxLength = 8 << 10
	// commandTimeout bounds one run of a "command:" source; a helper that
	// waits for a person to touch a key is given that long.
	commandTimeout = 30 * time.Second
)

// ErrValue is wrapped by errors about a value that can't be used.
var ErrValue = errors.New("unusable secret")

// reader reads sources. Its fields are the outside world, replaced in tests.
type reader struct {
	lookupEnv func(string) (string, bool)
	environ   func() []string
	now       func() time.Time
	// hidden are variables that "env:" sources read: a child has no business
	// with them (invariant 8).
	hidden []string
}

// read returns the bytes of the source, trailing line break removed.
func (r *reader) read(ctx context.Context, s *policies.Secret) ([]byte, error) {
	value, err := r.readSource(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	if err := check(s, value); err != nil {
		clear(value)
		return nil, fmt.Errorf("secret %s: %w", s.Name, err)
	}
	return value, nil
}

func (r *reader) readSource(ctx context.Context, s *policies.Secret) ([]byte, error) {
	switch s.From.Kind {
	case policies.FromEnv:
		value, ok := r.lookupEnv(s.From.Value)
		if !ok {
			return nil, fmt.Errorf("%w: the variable %s is not set: export it, or read the value from a file or a command", ErrValue, s.From.Value)
		}
		return []byte(value), nil
	case policies.FromFile:
		return readFile(&s.From)
	case policies.FromCommand:
		return r.runCommand(ctx, &s.From)
	case policies.FromNone:
	}
	return nil, fmt.Errorf("%w: it has no source: write from = \"env:NAME\", \"file:PATH\" or \"command:…\"", ErrValue)
}

func readFile(from *policies.Source) ([]byte, error) {
	path := from.Value
	file, err := grants.Open(from)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrValue, withoutPath(err, path))
	}
	defer file.Close()
	value, err := io.ReadAll(io.LimitReader(file, MaxLength+2))
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrValue, path, err)
	}
	return trimLine(value), nil
}

func withoutPath(err error, path string) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("the file %s: %w", path, pathErr.Err)
	}
	return err
}

// boundedBuffer keeps the first max bytes and swallows the rest.
type boundedBuffer struct {
	data []byte
	max  int
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.max-len(b.data))]...)
	return len(p), nil
}

func trimLine(value []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
}

// check refuses values that can't be placed or can't be masked.
func check(s *policies.Secret, value []byte) error {
	switch {
	case len(value) == 0:
		return fmt.Errorf("%w: its source gave nothing", ErrValue)
	case len(value) < MinLength:
		return fmt.Errorf("%w: its value is %d bytes long; below %d it would turn up by chance in ordinary answers: use a longer value", ErrValue, len(value), MinLength)
	case len(value) > MaxLength:
		return fmt.Errorf("%w: its value is longer than %d bytes", ErrValue, MaxLength)
	case len(bytes.TrimSpace(value)) != len(value):
		return fmt.Errorf("%w: its value starts or ends with white space: remove it from the source", ErrValue)
	}
	if slices.ContainsFunc(s.In, InHead) && slices.ContainsFunc(value, func(c byte) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("%w: its value holds a line break or another control character, which a header can't carry: remove it from the source, or use in = [\"body\"]", ErrValue)
	}
	return nil
}

// InHead reports whether a value at the place is written into a header as it is, so that it can hold no line break.
func InHead(place policies.Place) bool {
	switch place.Kind {
	case policies.InHeader, policies.InBasic:
		return true
	case policies.InQuery, policies.InBody, policies.InWebSocket:
	}
	return false
}
